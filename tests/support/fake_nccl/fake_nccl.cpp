#include "fake_nccl.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using libtrain::test::FakeNccl;
using namespace std::chrono_literals;

namespace {

std::atomic<FakeNccl*> current = nullptr;

// Counts this thread until it leaves the library.
class Inside {
 public:
  explicit Inside(FakeNccl& library) : library_(library) { ++library_.threads; }
  ~Inside() { --library_.threads; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  FakeNccl& library_;
};

// One collective or message of a rank.
struct Action {
  enum class Kind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, receive } kind;
  const void* input;
  void* output;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // the root, or the other rank
};

// The ranks of one communicator, which meet here.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  int connected = 0;
  int inside = 0;  // ranks that have come to the present meeting
  std::uint64_t meetings = 0;
  std::vector<const Action*> actions;
  std::map<std::pair<int, int>, std::vector<const Action*>> sends;
};

auto& worlds_mutex = *new std::mutex;
auto& worlds = *new std::map<std::string, std::shared_ptr<World>>;

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename Number>
void combine(Number* total, const Number* other, std::size_t count, ncclRedOp_t op) {
  for (std::size_t index = 0; index < count; ++index) {
    auto& sum = total[index];
    const auto value = other[index];
    switch (op) {
      case ncclMin:
        sum = std::min(sum, value);
        break;
      case ncclMax:
        sum = std::max(sum, value);
        break;
      case ncclProd:
        sum = static_cast<Number>(sum * value);
        break;
      default:
        sum = static_cast<Number>(sum + value);
    }
  }
}

// `count` elements of all ranks' inputs from element `begin` on.
template <typename Number>
void reduce(const std::vector<const Action*>& actions, std::size_t begin, std::size_t count, ncclRedOp_t op,
            void* output) {
  const auto from = [&](const Action* action) { return static_cast<const Number*>(action->input) + begin; };
  std::vector<Number> total(from(actions.front()), from(actions.front()) + count);
  for (std::size_t rank = 1; rank < actions.size(); ++rank) combine(total.data(), from(actions[rank]), count, op);
  if (op == ncclAvg) {
    for (auto& value : total) value = static_cast<Number>(value / static_cast<Number>(actions.size()));
  }
  std::memcpy(output, total.data(), count * sizeof(Number));
}

void reduce(const std::vector<const Action*>& actions, std::size_t begin, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op, void* output) {
  switch (type) {
    case ncclFloat32:
      return reduce<float>(actions, begin, count, op, output);
    case ncclInt32:
      return reduce<std::int32_t>(actions, begin, count, op, output);
    case ncclInt64:
      return reduce<std::int64_t>(actions, begin, count, op, output);
    default:
      std::abort();  // no test uses other types
  }
}

// Called by the last rank to come, for all.
void run_together(const std::vector<const Action*>& actions) {
  const auto& first = *actions.front();
  const auto bytes = first.count * size_of(first.type);
  // All inputs are read before an output is written: in-place calls may overlap.
  std::vector<std::vector<char>> results(actions.size());
  for (std::size_t rank = 0; rank < actions.size(); ++rank) {
    auto& result = results[rank];
    switch (first.kind) {
      case Action::Kind::all_reduce:
      case Action::Kind::reduce:
        result.resize(bytes);
        reduce(actions, 0, first.count, first.type, first.op, result.data());
        break;
      case Action::Kind::reduce_scatter:
        result.resize(bytes);
        reduce(actions, rank * first.count, first.count, first.type, first.op, result.data());
        break;
      case Action::Kind::broadcast: {
        const auto* root = static_cast<const char*>(actions[static_cast<std::size_t>(first.peer)]->input);
        result.assign(root, root + bytes);
        break;
      }
      case Action::Kind::all_gather:
        for (const auto* action : actions) {
          const auto* part = static_cast<const char*>(action->input);
          result.insert(result.end(), part, part + bytes);
        }
        break;
      default:
        break;
    }
  }
  for (std::size_t rank = 0; rank < actions.size(); ++rank) {
    if (actions[rank]->output == nullptr) continue;
    std::memcpy(actions[rank]->output, results[rank].data(), results[rank].size());
  }
}

thread_local int group_depth = 0;
thread_local ncclComm_t group_comm = nullptr;
thread_local ncclResult_t group_failure = ncclSuccess;

}  // namespace

struct ncclComm {
  FakeNccl& library = *current.load();
  std::shared_ptr<World> world;
  int rank = 0;
  std::vector<Action> group;  // of the thread that has opened it
  std::atomic<bool> aborting = false;
  std::atomic<int> threads = 0;  // in calls with this communicator
  std::atomic<bool> is_polled = false;
  std::atomic<ncclResult_t> job_state = ncclSuccess;  // of the job below
  std::thread job;                                    // as in NCCL, joined by the poller, without a lock
  bool is_connected = false;
  bool is_over = false;

  // Returns false once the communicator is aborted, or the test is over.
  bool goes_on() const { return !aborting && !library.finished; }

  // A wait that an abort ends.
  bool pause(std::chrono::milliseconds time, const std::atomic<bool>& for_ever) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (goes_on() && (for_ever || std::chrono::steady_clock::now() < end)) std::this_thread::sleep_for(1ms);
    return goes_on();
  }

  // Returns when all ranks have come; the last one calls `last` first.
  template <typename Last>
  bool meet(const Action* action, const Last& last) {
    std::unique_lock lock(world->mutex);
    world->actions.resize(static_cast<std::size_t>(world->size));
    world->actions[static_cast<std::size_t>(rank)] = action;
    const auto meeting = world->meetings;
    if (++world->inside == world->size) {
      last();
      world->inside = 0;
      ++world->meetings;
      world->changed.notify_all();
      return true;
    }
    while (world->meetings == meeting && goes_on()) world->changed.wait_for(lock, 1ms);
    return world->meetings != meeting;
  }

  bool run(const Action& action) {
    return meet(&action, [this] { run_together(world->actions); });
  }

  // Sends and receives of one group take place together.
  bool run_messages(const std::vector<Action>& messages) {
    {
      const std::lock_guard lock(world->mutex);
      for (const auto& message : messages) {
        if (message.kind == Action::Kind::send) world->sends[{rank, message.peer}].push_back(&message);
      }
    }
    if (!meet(nullptr, [] {})) return false;
    for (const auto& message : messages) {
      if (message.kind != Action::Kind::receive) continue;
      const std::lock_guard lock(world->mutex);
      const auto& sent = world->sends.at({message.peer, rank});
      std::memcpy(message.output, sent.front()->input, message.count * size_of(message.type));
    }
    return meet(nullptr, [this] { world->sends.clear(); });
  }

  template <typename Body>
  void start(const Body& body) {
    job_state = ncclInProgress;
    job = std::thread([this, body] {
      const Inside inside{library};
      const auto result = body();
      job_state = result;
    });
  }
};

namespace {

// Checks a call with a communicator. ncclCommGetAsyncError must be alone in it.
class CallOf {
 public:
  explicit CallOf(ncclComm_t comm, bool polls = false) : comm_(comm), polls_(polls) {
    if (comm->is_over) ++comm->library.invalid_calls;
    if (comm->threads++ > 0 && (polls || comm->is_polled)) ++comm->library.concurrent_polls;
    if (polls) comm->is_polled = true;
    std::this_thread::yield();
  }
  ~CallOf() {
    if (polls_) comm_->is_polled = false;
    --comm_->threads;
  }
  CallOf(const CallOf&) = delete;
  CallOf& operator=(const CallOf&) = delete;

 private:
  ncclComm_t comm_;
  bool polls_;
};

ncclResult_t add(ncclComm_t comm, const Action& action) {
  const CallOf call{comm};
  if (!comm->is_connected || group_depth == 0) ++comm->library.invalid_calls;
  group_comm = comm;
  if (const auto result = comm->library.call_result.exchange(ncclSuccess); result != ncclSuccess) {
    group_failure = result;
    return result;
  }
  comm->group.push_back(action);
  return ncclSuccess;
}

ncclResult_t launch(ncclComm_t comm, const std::vector<Action>& actions) {
  auto& how = comm->library;
  if (!comm->pause(how.launching, how.never_launches)) return ncclInternalError;
  if (const auto state = how.group_state.load(); state != ncclSuccess) return state;
  const bool are_messages = actions.front().kind >= Action::Kind::send;
  bool is_done = true;
  if (are_messages) {
    is_done = comm->run_messages(actions);
  } else {
    for (const auto& action : actions) is_done = is_done && comm->run(action);
  }
  if (is_done) ++how.launches;
  return is_done ? ncclSuccess : ncclInternalError;
}

void block_if(const std::atomic<bool>& blocks, const FakeNccl& library) {
  while (blocks && !library.finished) std::this_thread::sleep_for(1ms);
}

void end(ncclComm_t comm) {
  comm->aborting = true;
  if (comm->job.joinable()) comm->job.join();
  comm->is_over = true;
}

// Never destroyed, see FakeNccl: a use after the end is seen as an invalid call.
template <typename Object>
Object& keep(std::unique_ptr<Object> object) {
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<std::unique_ptr<Object>>;
  const std::lock_guard lock(mutex);
  return *kept.emplace_back(std::move(object));
}

}  // namespace

FakeNccl& FakeNccl::start() {
  auto& library = keep(std::make_unique<FakeNccl>());
  current = &library;
  return library;
}

void FakeNccl::finish() {
  finished = true;
  while (threads > 0) std::this_thread::sleep_for(1ms);
}

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> ids = 0;
  std::memset(id->internal, 0, sizeof(id->internal));
  const auto name = std::to_string(++ids);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclUnhandledCudaError ? "unhandled cuda error" : code == ncclSuccess ? "no error" : "an error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;  // only those are implemented
  auto* const comm = &keep(std::make_unique<ncclComm>());
  {
    const std::lock_guard lock(worlds_mutex);
    auto& world = worlds[id.internal];
    if (world == nullptr) world = std::make_shared<World>();
    comm->world = world;
  }
  comm->rank = rank;
  {
    const std::lock_guard lock(comm->world->mutex);
    comm->world->size = ranks;
  }
  ++comm->library.connects;
  comm->start([comm] {
    auto& how = comm->library;
    const bool all_came = comm->meet(nullptr, [] {});
    return all_came && comm->pause(how.connecting, how.never_connects) ? ncclSuccess : ncclInternalError;
  });
  *made = comm;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const CallOf call{comm, /*polls=*/true};
  *state = comm->job_state;
  if (*state != ncclInProgress && comm->job.joinable()) {
    comm->job.join();
    comm->is_connected = comm->is_connected || *state == ncclSuccess;
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  auto* const comm = std::exchange(group_comm, nullptr);
  const auto failure = std::exchange(group_failure, ncclSuccess);
  if (--group_depth > 0 || comm == nullptr) return failure;
  const CallOf call{comm};
  auto actions = std::exchange(comm->group, {});
  if (failure != ncclSuccess) return failure;
  if (const auto result = comm->library.group_result.load(); result != ncclSuccess) return result;
  if (actions.empty()) return ncclSuccess;
  comm->start([comm, actions] { return launch(comm, actions); });
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t /*stream*/) {
  return add(comm, {Action::Kind::all_reduce, input, output, count, type, op, 0});
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t /*stream*/) {
  return add(comm, {Action::Kind::reduce, input, comm->rank == root ? output : nullptr, count, type, op, root});
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t /*stream*/) {
  return add(comm, {Action::Kind::broadcast, input, output, count, type, ncclSum, root});
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t /*stream*/) {
  return add(comm, {Action::Kind::all_gather, input, output, count, type, ncclSum, 0});
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t /*stream*/) {
  return add(comm, {Action::Kind::reduce_scatter, input, output, count, type, op, 0});
}

ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t /*stream*/) {
  return add(comm, {Action::Kind::send, input, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t /*stream*/) {
  return add(comm, {Action::Kind::receive, nullptr, output, count, type, ncclSum, peer});
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (current.load()->refuses_memory) return ncclUnhandledCudaError;
  *memory = std::malloc(bytes);
  ++current.load()->allocated;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  std::free(memory);
  --current.load()->allocated;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t /*bytes*/, void** registration) {
  const CallOf call{comm};
  if (comm->job.joinable()) ++comm->library.invalid_calls;  // a group is in progress, and reads the registrations
  if (comm->library.refuses_memory) return ncclInvalidUsage;
  *registration = memory;
  ++comm->library.registered;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* /*registration*/) {
  const CallOf call{comm};
  if (comm->job.joinable()) ++comm->library.invalid_calls;
  --comm->library.registered;
  return ncclSuccess;
}

// Finalizing is collective.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const CallOf call{comm};
  if (comm->job.joinable()) ++comm->library.invalid_calls;  // a group is in progress
  ++comm->library.finalizes;
  comm->start([comm] {
    const bool all_came = comm->meet(nullptr, [] {});
    return all_came && comm->pause(0ms, comm->library.never_finalizes) ? ncclSuccess : ncclInternalError;
  });
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Inside inside{comm->library};
  const CallOf call{comm};
  ++comm->library.destroys;
  block_if(comm->library.destroy_blocks, comm->library);
  end(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Inside inside{comm->library};
  const CallOf call{comm};
  block_if(comm->library.abort_blocks, comm->library);
  end(comm);
  ++comm->library.aborts;
  return ncclSuccess;
}

}  // extern "C"
