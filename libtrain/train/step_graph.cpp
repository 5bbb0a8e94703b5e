#include <libtrain/train/step_graph.hpp>

#include <exception>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/device/gpu_failure.hpp>
#include <libtrain/comm/detail/device/stream_mark.hpp>
#include <libtrain/optim/detail/step_recording.hpp>

namespace libtrain {

namespace {

// While it exists, steps read learning rates from the device.
class RecordedRates {
 public:
  explicit RecordedRates(const std::vector<optim::DeviceOptimizer*>& optimizers) : optimizers_(optimizers) {
    for (auto* optimizer : optimizers_) optimizer->begin_recording();
  }
  ~RecordedRates() {
    for (auto* optimizer : optimizers_) optimizer->end_recording();
  }
  RecordedRates(const RecordedRates&) = delete;  // ends the recording once
  RecordedRates& operator=(const RecordedRates&) = delete;

 private:
  const std::vector<optim::DeviceOptimizer*>& optimizers_;
};

std::string first_line_of(const std::string& lines) {
  return lines.substr(0, lines.find('\n'));
}

// LibTorch reports what a recording does not allow as an error of the call. The same step ran without recording, so an
// error of LibTorch is most likely of that kind, unless the machine has failed.
template <typename Call>
auto explaining_errors(const Call& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    const auto failure = detail::gpu_failure_of(error);
    if (failure && failure->code == ExitCode::environment) throw;
    throw UsageError(text("The step cannot be recorded into a graph: ", first_line_of(error.what_without_backtrace()),
                          " A recorded step must neither wait for the device nor read its memory on the host, as "
                          "item(), cpu(), nonzero() and conditions on tensors do: move such calls out of the body."));
  }
}

std::string describe_input(at::IntArrayRef sizes, at::ScalarType type) {
  return text("shape ", sizes, " and dtype ", type);
}

}  // namespace

StepGraph::StepGraph(Communicator& communicator, std::unique_ptr<DeviceGraph> graph,
                     std::vector<std::reference_wrapper<torch::optim::Optimizer>> optimizers, Body body,
                     StepGraphOptions options)
    : communicator_(communicator),
      device_(communicator.device()),
      graph_(std::move(graph)),
      body_(std::move(body)),
      options_(options),
      label_(std::make_shared<const std::string>("the replay of a recorded step")) {
  if (device_.is_cpu()) {
    throw UsageError(
        "StepGraph records work of a GPU, and this rank's communicator is on the CPU. Call the body itself.");
  }
  if (!communicator.is_recordable()) {
    throw UsageError(text("StepGraph cannot record collectives of the backend '", communicator.backend(),
                          "', which go through host memory. Use NCCL, with one rank for each GPU, or call the body "
                          "itself."));
  }
  if (graph_ == nullptr || !body_) throw UsageError("StepGraph was given no graph or no body.");
  if (options.warm_up_steps < 1) {
    throw UsageError(text("StepGraphOptions::warm_up_steps is ", options.warm_up_steps, "; it must be 1 or more."));
  }
  for (std::size_t index = 0; index < optimizers.size(); ++index) {
    auto* const on_device = dynamic_cast<optim::DeviceOptimizer*>(&optimizers[index].get());
    if (on_device == nullptr) {
      throw UsageError(
          text("StepGraph was given an optimizer (number ", index,
               ", counted from 0) that reads learning rates and step counts on the host, so replays would "
               "repeat those of the recording. Use FusedSgd, FusedAdamW, Lars or Lamb of libtrain::optim."));
    }
    optimizers_.push_back(on_device);
  }
}

StepGraph::~StepGraph() = default;

const StepGraph::Tensors& StepGraph::step(const Tensors& inputs) {
  if (phase_ == Phase::failed) {
    throw UsageError("This StepGraph could not record its step. Create another one once the cause is removed.");
  }
  check_stream();
  check(inputs);
  if (phase_ == Phase::warm_up && warm_up_steps_ < options_.warm_up_steps) {
    outputs_ = run_body(inputs);
    ++warm_up_steps_;
    return outputs_;
  }
  if (phase_ == Phase::warm_up) record(inputs);
  copy_inputs(inputs);
  replay();
  return outputs_;
}

void StepGraph::check_stream() {
  const c10::impl::VirtualGuardImpl streams(device_.type());
  const auto current = streams.getStream(device_);
  if (current == streams.getDefaultStream(device_)) {
    throw UsageError(text("StepGraph::step() was called with the default stream of ", device_,
                          " as the current one, which cannot be recorded. Call it in the body of run(), or set another "
                          "stream with c10::StreamGuard before the model is created."));
  }
  if (!stream_) stream_ = current;
  if (current == *stream_) return;
  throw UsageError(
      "StepGraph::step() was called with another current stream than before. Its steps are ordered by one stream: call "
      "all of them with the same one.");
}

void StepGraph::check(const Tensors& inputs) {
  if (at::autocast::is_autocast_available(device_.type()) && at::autocast::is_autocast_enabled(device_.type()) &&
      at::autocast::is_autocast_cache_enabled()) {
    throw UsageError(
        "StepGraph::step() was called within an Autocast that keeps casts of weights, which replays would not renew. "
        "Create the Autocast in the body, or with AutocastOptions::cache_weights = false.");
  }
  std::vector<Signature> signatures;
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    const auto& input = inputs[index];
    if (!input.defined() || input.device() != device_) {
      throw UsageError(text("Input ", index, " of StepGraph::step() is ",
                            input.defined() ? text("on ", input.device()) : text("undefined"), "; it must be on ",
                            device_, "."));
    }
    signatures.push_back({input.sizes().vec(), input.scalar_type()});
  }
  if (!signatures_) signatures_ = std::move(signatures);
  if (inputs.size() != signatures_->size()) {
    throw UsageError(text("StepGraph::step() was given ", inputs.size(), " inputs, and ", signatures_->size(),
                          " in its first step."));
  }
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    const auto& [sizes, type] = (*signatures_)[index];
    if (inputs[index].sizes() == at::IntArrayRef(sizes) && inputs[index].scalar_type() == type) continue;
    throw UsageError(text("Input ", index, " of StepGraph::step() has ",
                          describe_input(inputs[index].sizes(), inputs[index].scalar_type()), ", but ",
                          describe_input(sizes, type),
                          " in the first step. A recorded step takes the same shapes each time: drop the last batch if "
                          "it is smaller, or make a separate step for it."));
  }
}

StepGraph::Tensors StepGraph::run_body(const Tensors& inputs) const {
  auto outputs = body_(inputs);
  for (auto& output : outputs) {
    if (!output.defined()) continue;
    if (output.device() != device_) {
      throw UsageError(text("The body of a StepGraph has returned a tensor on ", output.device(),
                            ", which replays would not change. Return tensors on ", device_,
                            ", and read them after step()."));
    }
    output = output.detach();
  }
  return outputs;
}

void StepGraph::record(const Tensors& inputs) {
  phase_ = Phase::failed;
  outputs_.clear();
  // So that errors of the steps before are not taken for those of the recording.
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeStream(*stream_);
  for (const auto& input : inputs) inputs_.push_back(at::empty_like(input));
  nothing_ = at::empty({0}, at::TensorOptions(at::kFloat).device(device_));
  const auto failure = detail::failure_of([&] { explaining_errors([&] { record_body(); }); });
  try {
    detail::throw_together(communicator_, "Recording a step", failure);
  } catch (const CommunicationError&) {
    if (failure) std::rethrow_exception(failure);  // the peers are still in the step, and receive that other error
    throw;
  }
  phase_ = Phase::recorded;
}

void StepGraph::record_body() {
  const RecordedRates rates{optimizers_};
  const optim::detail::StepRecording recording;
  graph_->begin();
  try {
    outputs_ = run_body(inputs_);
  } catch (...) {
    const auto failure = std::current_exception();
    // What the exception has left undone is no other error.
    static_cast<void>(detail::failure_of([&] { graph_->end(); }));
    std::rethrow_exception(failure);
  }
  graph_->end();
}

void StepGraph::copy_inputs(const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  for (std::size_t index = 0; index < inputs.size(); ++index)
    inputs_[index].copy_(inputs[index], /*non_blocking=*/true);
}

// Recorded collectives have no deadline and are not compared. One without elements, after the graph, has both.
void StepGraph::replay() {
  for (auto* optimizer : optimizers_) optimizer->refresh_rates();
  graph_->replay();
  const CallPurpose purpose{communicator_, label_};
  communicator_.all_reduce(nothing_).wait();
}

}  // namespace libtrain
