#include <libtrain/comm/detail/nccl/nccl_comm.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <c10/cuda/CUDAFunctions.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/nccl/nccl_check.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kCloseTime{2000};
constexpr std::chrono::milliseconds kAbortTime{1000};

// Launching a collective takes NCCL tens of microseconds, connecting to peers up to seconds.
void pause_after(int polls) {
  if (polls < 1000) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// While a process exits, the CUDA runtime may be unloaded before libtrain's communicators: NCCL must not be called
// then.
bool cuda_is_unloading() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaErrorCudartUnloading;
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const auto code = ncclCommGetAsyncError(comm, &state);
  return code == ncclSuccess ? state : code;
}

// A new thread has device 0, on which its first CUDA call would create a context.
void use_device(int device) noexcept {
  if (cudaSetDevice(device) != cudaSuccess) static_cast<void>(cudaGetLastError());
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

NcclComm::NcclComm(const ncclUniqueId& id, int rank, int world_size)
    : rank_(rank), world_size_(world_size), device_(c10::cuda::current_device()) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = "libtrain";
  LIBTRAIN_CHECK_NCCL(ncclCommInitRankConfig(&comm_, world_size, id, rank, &config), rank);
}

NcclComm::~NcclComm() {
  const auto comm = take();
  if (comm == nullptr || cuda_is_unloading()) return;
  try {
    // ncclCommAbort may never return.
    const auto ended = std::make_shared<std::promise<void>>();
    const auto end = ended->get_future();
    std::thread([comm, ended, device = device_] {
      use_device(device);
      ncclCommAbort(comm);
      ended->set_value();
    }).detach();
    end.wait_for(kAbortTime);
  } catch (...) {
    // No thread can be created: leaking the communicator is better than a hang.
  }
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
}

void NcclComm::enter_thread() noexcept {
  use_device(device_);
}

std::string NcclComm::asynchronous_error() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return {};
  const auto state = state_of(comm_);
  if (!has_failed(state)) return {};
  return text("NCCL on rank ", rank_, " reports ", describe_nccl(state), ". See the logs of the other ranks.");
}

void NcclComm::abort() noexcept {
  const auto comm = take();
  if (comm != nullptr && !cuda_is_unloading()) ncclCommAbort(comm);
}

void NcclComm::close() noexcept {
  const auto comm = take();
  if (comm == nullptr || cuda_is_unloading()) return;
  const auto deadline = Deadline::after(kCloseTime);
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
  return std::exchange(comm_, nullptr);
}

}  // namespace libtrain::detail
