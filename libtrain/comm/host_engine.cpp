#include <libtrain/comm/host_engine.hpp>

#include <utility>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kAbortTime{1000};

}  // namespace

HostEngine::HostEngine(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout)
    : queue_(std::make_shared<OperationQueue>(std::move(transport), timeout)),
      thread_([queue = queue_] { queue->serve(); }) {}

HostEngine::~HostEngine() {
  queue_->stop();
  bool served = queue_->wait_until_served(drain_time());
  if (!served) {
    queue_->fail("the communicator was destroyed while collectives were under way");
    served = queue_->wait_until_served(kAbortTime);
  }
  if (served) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

Work HostEngine::submit(const Call& call, const Details& details, Operation::Body body) {
  auto operation =
      std::make_shared<Operation>(call, Arrival{.input = details.input, .output = details.output},
                                  Deadline::after(details.timeout.value_or(queue_->timeout)), std::move(body));
  operation->queue = queue_;
  operation->label = label_;
  queue_->submit(operation);
  return Work{std::move(operation)};
}

void HostEngine::abort(const std::string& reason, ExitCode code) noexcept {
  static const std::string unsaid = "the communicator was aborted";
  const auto& said = reason.empty() ? unsaid : reason;
  queue_->fail(said);
  queue_->transport->end_job(said, code);
}

}  // namespace libtrain::detail
