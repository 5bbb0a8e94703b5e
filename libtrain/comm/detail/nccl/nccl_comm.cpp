#include <libtrain/comm/detail/nccl/nccl_comm.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/nccl/cuda_device.hpp>
#include <libtrain/comm/detail/nccl/cuda_errors.hpp>
#include <libtrain/comm/detail/nccl/nccl_check.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kCloseTime{2000};
constexpr std::chrono::milliseconds kAbortTime{1000};
constexpr std::chrono::milliseconds kRegisterTime{30000};
constexpr std::chrono::milliseconds kDeregisterTime{500};  // on the watchdog's thread

// Launching a collective takes NCCL tens of microseconds, connecting to peers up to seconds.
void pause_after(int polls) {
  if (polls < 1000) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const auto code = ncclCommGetAsyncError(comm, &state);
  return code == ncclSuccess ? state : code;
}

// Calls `end`, which may never return, on a thread of its own, and gives up waiting for it after `limit`.
template <typename End>
void run_detached(int device, std::chrono::milliseconds limit, End end) noexcept {
  try {
    const auto ended = std::make_shared<std::promise<void>>();
    const auto has_ended = ended->get_future();
    std::thread([device, end, ended] {
      enter_cuda_thread(device);
      end();
      ended->set_value();
    }).detach();
    has_ended.wait_for(limit);
  } catch (...) {
    // No thread can be created: leaking the communicator is better than a hang.
  }
}

void finalize_and_destroy(ncclComm_t comm, const Deadline& deadline) {
  auto state = ncclCommFinalize(comm);
  for (int polls = 0; state == ncclInProgress && !deadline.expired(); ++polls) {
    pause_after(polls);
    state = state_of(comm);
  }
  if (state == ncclSuccess) {
    ncclCommDestroy(comm);
  } else {
    ncclCommAbort(comm);
  }
}

// A group of NCCL calls. A group that is not ended would delay all later calls of this thread.
class Group {
 public:
  explicit Group(int rank) { LIBTRAIN_CHECK_NCCL(ncclGroupStart(), rank); }
  ~Group() {
    if (is_open_) static_cast<void>(ncclGroupEnd());
  }
  Group(const Group&) = delete;  // one start, one end
  Group& operator=(const Group&) = delete;

  ncclResult_t end() {
    is_open_ = false;
    return ncclGroupEnd();
  }

 private:
  bool is_open_ = true;
};

}  // namespace

NcclComm::NcclComm(const ncclUniqueId& id, int rank, int world_size, int device)
    : rank_(rank), world_size_(world_size), device_(device) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = "libtrain";
  LIBTRAIN_CHECK_NCCL(ncclCommInitRankConfig(&comm_, world_size, id, rank, &config), rank);
}

NcclComm::~NcclComm() {
  const auto comm = take();
  if (comm == nullptr || cuda_is_unloading()) return;
  run_detached(device_, kAbortTime, [comm] { ncclCommAbort(comm); });
}

void NcclComm::connect(const Deadline& deadline) {
  const auto outcome = poll(deadline);
  if (outcome == ncclInProgress) {
    throw CommunicationError(text("NCCL on rank ", rank_, " did not connect to all ", world_size_,
                                  " ranks before the deadline. Check that every rank runs, and with NCCL_DEBUG=INFO "
                                  "which network interface each of them uses."));
  }
  check_nccl(outcome, "ncclCommInitRankConfig", rank_);
}

void NcclComm::launch(const std::function<ncclResult_t(ncclComm_t)>& calls, const Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw CommunicationError("The NCCL communicator has been aborted.");
    Group group{rank_};
    is_launching_ = true;
    const auto called = calls(comm_);
    const auto ended = group.end();
    check_nccl(called, "The call", rank_);
    check_nccl(ended, "ncclGroupEnd", rank_);
  }
  const auto outcome = poll(deadline);
  if (outcome == ncclInProgress) {
    throw CommunicationError(text("NCCL on rank ", rank_,
                                  " could not start the collective before the deadline. Check that every rank "
                                  "called it."));
  }
  check_nccl(outcome, "The launch", rank_);
  const std::lock_guard lock(mutex_);
  is_launching_ = false;
  launched_.notify_all();
}

bool NcclComm::is_launching() const {
  const std::lock_guard lock(mutex_);
  return comm_ != nullptr && is_launching_;
}

// NCCL's thread reads the registrations in a launch, without a lock. Returns false at the limit.
bool NcclComm::wait_for_launch(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit) {
  return launched_.wait_for(lock, limit, [this] { return comm_ == nullptr || !is_launching_; });
}

void* NcclComm::register_memory(void* data, std::size_t bytes) noexcept {
  try {
    std::unique_lock lock(mutex_);
    void* registration = nullptr;
    if (!wait_for_launch(lock, kRegisterTime) || comm_ == nullptr) return nullptr;
    if (ncclCommRegister(comm_, data, bytes, &registration) != ncclSuccess) return nullptr;
    registrations_.insert(registration);
    return registration;
  } catch (...) {
    return nullptr;  // out of memory; the registration ends with the communicator
  }
}

bool NcclComm::deregister(void* registration) noexcept {
  std::unique_lock lock(mutex_);
  if (!wait_for_launch(lock, kDeregisterTime)) return false;
  if (comm_ != nullptr && registrations_.erase(registration) > 0 && !cuda_is_unloading()) {
    ncclCommDeregister(comm_, registration);
  }
  return true;
}

void NcclComm::enter_thread() noexcept {
  enter_cuda_thread(device_);
}

std::string NcclComm::asynchronous_error() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return {};
  const auto state = state_of(comm_);
  if (!has_failed(state)) return {};
  return with_cuda_advice(
      text("NCCL on rank ", rank_, " reports ", describe_nccl(state), ". See the logs of the other ranks."), rank_,
      device_);
}

std::string NcclComm::describe(const std::exception& error) const {
  const std::string what = error.what();
  // LibTorch's errors end with a backtrace, which does not help users of this library.
  return with_cuda_advice(what.substr(0, what.find("\nException raised from")), rank_, device_);
}

void NcclComm::abort() noexcept {
  const auto comm = take();
  if (comm != nullptr && !cuda_is_unloading()) ncclCommAbort(comm);
}

void NcclComm::close() noexcept {
  deregister_all();
  const auto comm = take();
  if (comm == nullptr || cuda_is_unloading()) return;
  run_detached(device_, kCloseTime + kAbortTime, [comm] { finalize_and_destroy(comm, Deadline::after(kCloseTime)); });
}

void NcclComm::leave() noexcept {
  deregister_all();
  take();
}

// A local operation, unlike closing. The memory may be freed from now on.
void NcclComm::deregister_all() noexcept {
  const std::lock_guard lock(mutex_);
  const auto registrations = std::exchange(registrations_, {});
  if (comm_ == nullptr || is_launching_ || cuda_is_unloading()) return;
  for (auto* const registration : registrations) ncclCommDeregister(comm_, registration);
}

ncclResult_t NcclComm::state() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw CommunicationError("The NCCL communicator has been aborted.");
  return state_of(comm_);
}

// Returns the final state, or ncclInProgress at the deadline.
ncclResult_t NcclComm::poll(const Deadline& deadline) {
  auto current = state();
  for (int polls = 0; current == ncclInProgress && !deadline.expired(); ++polls) {
    pause_after(polls);
    current = state();
  }
  return current;
}

// Only the caller that takes the communicator ends it, without the lock, because that may take long.
ncclComm_t NcclComm::take() noexcept {
  const std::lock_guard lock(mutex_);
  launched_.notify_all();
  return std::exchange(comm_, nullptr);
}

}  // namespace libtrain::detail
