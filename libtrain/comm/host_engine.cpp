#include <libtrain/comm/host_engine.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kDrainTime{5000};
constexpr std::chrono::milliseconds kUnwindTime{200};
constexpr std::chrono::milliseconds kAbortTime{1000};

// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/: enough to tell apart calls that differ by mistake.
std::uint64_t fingerprint(const Operation& operation) {
  std::uint64_t hash = 14695981039346656037ull;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 1099511628211ull; };
  for (const char character : operation.description) mix(static_cast<unsigned char>(character));
  for (int shift = 0; shift < 64; shift += 8) mix(static_cast<unsigned char>(operation.sequence >> shift));
  return hash;
}

// Ranks grouped by what they called, so that a thousand ranks still give a message one can read.
[[noreturn]] void throw_mismatch(HostTransport& transport, const Operation& operation, const Patience& patience) {
  constexpr std::size_t kCallLength = 160;
  const auto world_size = static_cast<std::size_t>(transport.world_size());
  std::vector<char> mine(kCallLength, '\0');
  std::memcpy(mine.data(), operation.description.data(), std::min(operation.description.size(), kCallLength - 1));
  std::vector<char> all(kCallLength * world_size);
  transport.all_gather(mine.data(), all.data(), kCallLength, patience);
  const auto call_of = [&](std::size_t rank) { return std::string{all.data() + rank * kCallLength}; };
  std::vector<std::string> parts;
  for (std::size_t first = 0, last = 0; first < world_size; first = last + 1) {
    for (last = first; last + 1 < world_size && call_of(last + 1) == call_of(first);) ++last;
    const auto ranks = first == last ? text("rank ", first) : text("ranks ", first, " to ", last);
    parts.push_back(text(ranks, " called ", call_of(first)));
  }
  throw CommunicationError(text("The ranks called different collectives as number ", operation.sequence, ": ",
                                join(parts, "; "), ". Every rank must make the same calls in the same order."),
                           ErrorScope::all_ranks);
}

}  // namespace

struct HostEngine::State {
  std::unique_ptr<HostTransport> transport;
  std::chrono::milliseconds timeout{};
  std::shared_ptr<std::atomic<int>> waiters = std::make_shared<std::atomic<int>>(0);

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Operation>> queue;
  std::uint64_t submitted = 0;
  std::exception_ptr failure;
  bool stopping = false;
  bool exited = false;

  void loop();
  void fail(const std::string& reason) noexcept;
  std::exception_ptr run(Operation& operation);
  std::shared_ptr<Operation> next();
};

std::shared_ptr<Operation> HostEngine::State::next() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return stopping || !queue.empty(); });
  if (queue.empty()) return nullptr;
  auto operation = std::move(queue.front());
  queue.pop_front();
  return operation;
}

std::exception_ptr HostEngine::State::run(Operation& operation) {
  {
    const std::lock_guard lock(mutex);
    if (failure) return failure;
  }
  std::exception_ptr outcome;
  try {
    const Patience patience{operation.deadline, waiters.get()};
    if (!transport->arrive(fingerprint(operation), patience)) throw_mismatch(*transport, operation, patience);
    operation.body(*transport, patience);
  } catch (const CommunicationError& error) {
    outcome = std::make_exception_ptr(CommunicationError(
        text(operation.description, " (collective number ", operation.sequence, ") failed: ", error.what()),
        error.scope()));
  } catch (...) {
    outcome = std::current_exception();
  }
  if (outcome) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = outcome;
    outcome = failure;
  }
  return outcome;
}

void HostEngine::State::loop() {
  while (auto operation = next()) operation->finish(run(*operation));
  const std::lock_guard lock(mutex);
  exited = true;
  changed.notify_all();
}

void HostEngine::State::fail(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::make_exception_ptr(CommunicationError(reason));
  } catch (...) {
    // Out of memory: the transport below still ends what is under way.
  }
  transport->abort(reason);
}

HostEngine::HostEngine(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>()) {
  state_->transport = std::move(transport);
  state_->timeout = timeout;
  thread_ = std::thread([state = state_] { state->loop(); });
}

HostEngine::~HostEngine() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  const auto exited = [this] { return state_->exited; };
  // When an exception unwinds, the peers may never come to what this rank still has queued.
  const auto patience = std::uncaught_exceptions() > 0 ? kUnwindTime : kDrainTime;
  if (!state_->changed.wait_for(lock, patience, exited)) {
    lock.unlock();
    state_->fail("the communicator was destroyed while collectives were under way");
    lock.lock();
    state_->changed.wait_for(lock, kAbortTime, exited);
  }
  const bool joinable = state_->exited;
  lock.unlock();
  if (joinable) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

const HostTransport& HostEngine::transport() const {
  return *state_->transport;
}

std::chrono::milliseconds HostEngine::timeout() const {
  return state_->timeout;
}

Work HostEngine::submit(std::string description, std::function<void(HostTransport&, const Patience&)> body) {
  auto operation = std::make_shared<Operation>();
  operation->description = std::move(description);
  operation->body = std::move(body);
  operation->deadline = Deadline::after(state_->timeout);
  operation->waiters = state_->waiters;
  const std::lock_guard lock(state_->mutex);
  if (state_->failure) std::rethrow_exception(state_->failure);
  operation->sequence = state_->submitted++;
  state_->queue.push_back(operation);
  state_->changed.notify_all();
  return Work{std::move(operation)};
}

void HostEngine::abort(const std::string& reason, ExitCode code) noexcept {
  state_->fail(reason);
  state_->transport->end_job(reason, code);
}

std::shared_ptr<void> HostEngine::allocate(std::size_t bytes) {
  return state_->transport->allocate(bytes);
}

}  // namespace libtrain::detail
