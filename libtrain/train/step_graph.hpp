#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <torch/optim/optimizer.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/optim/device_optimizer.hpp>

namespace libtrain {

/// A sequence of operations of one device that is recorded once and replayed many times. cuda_graph() makes one of
/// CUDA. Belongs to one thread.
class DeviceGraph {
 public:
  DeviceGraph() = default;
  virtual ~DeviceGraph() = default;
  DeviceGraph(const DeviceGraph&) = delete;  // owns the memory of what it records
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  /// From here on, what this thread's current stream of the device is given is recorded and does not run, whichever
  /// thread gives it; so is that of streams that wait for it. A graph records once.
  virtual void begin() = 0;

  /// Ends the recording, in the same thread. Throws if something was done that cannot be recorded; the graph cannot be
  /// replayed then, but in any case the stream can be used again.
  virtual void end() = 0;

  /// Queues what was recorded in the current stream.
  virtual void replay() = 0;
};

struct StepGraphOptions {
  /// Steps that run without being recorded, 1 or more, in which memory, connections and state that are needed once are
  /// made: optimizers and loss scalers make theirs in the first one, and a GradientSynchronizer needs two.
  int warm_up_steps = 3;
};

/// Records a whole training step into a graph, with the reductions inside, and replays it: launching one graph instead
/// of thousands of kernels takes the host almost no time. For models whose step does the same with tensors of the same
/// shapes each time.
///
///     optim::FusedSgd sgd{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
///     GradientSynchronizer synchronizer{*model, communicator};
///     StepGraph graph{communicator, cuda_graph(context.device()), {sgd}, [&](const StepGraph::Tensors& batch) {
///       const auto loss = torch::cross_entropy_loss(model->forward(batch[0]), batch[1]);
///       loss.backward();
///       synchronizer.wait();
///       sgd.step();
///       synchronizer.zero_grad();
///       return StepGraph::Tensors{loss};
///     }};
///     for (auto& batch : loader.epoch(epoch)) {
///       rate.set(step++);                                              // replays follow the learning rate
///       const auto loss = graph.step({batch.images, batch.labels})[0];
///       if (step % 100 == 0) log(loss.item<double>());                 // the only wait
///     }
///
/// The first `warm_up_steps` calls of step() run the body as it is; the next one records it and replays it once, and
/// all later ones replay it. So the body is not called any more: what it does on the host, such as counting or logging,
/// does not happen in replays, and numbers that it reads on the host are those of the recording. What belongs to each
/// step stands around step(). Random numbers of LibTorch's generators differ in each replay.
///
/// The body may contain: forward pass, Autocast, loss, LossScaler from scale() to update(), backward(),
/// GradientSynchronizer::wait() (see there for what a recorded round must not do), clip_gradients(), step() of
/// optimizers that are given to the constructor, MovingAverage without warm_up (whose updates() does not count
/// replays), zero_grad(), SyncBatchNorm, and collectives of recordable communicators, which must be waited for in it.
/// It must not wait for the device, read a device's memory on the host (item(), cpu(), nonzero(), a tensor as a
/// condition), or copy from pageable host memory. An optimizer's options other than the learning rates are those of the
/// recording.
///
/// Streams: all calls of step() must have the same current stream, not the default one; `run` gives its body such a
/// stream. The model, optimizers and synchronizer must have been made with the same current stream. Data that other
/// threads load may be copied meanwhile.
///
/// Memory: what the body allocates while it is recorded stays reserved for the graph, beside the memory of the steps
/// before. Parameters, their gradients' buckets and optimizer state are used where they are: freezing parameters,
/// loading an optimizer or model, or moving them needs a new StepGraph. It must not outlive the communicator, the
/// module, the synchronizer and the optimizers.
///
/// Ranks: all ranks must call step() together. They compare the number of collectives that they have recorded, and
/// after that, now and then, the number of replays; a replay that does not end within the communicator's timeout fails
/// the communicator, as a collective would.
///
/// Not thread-safe.
class StepGraph {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Body = std::function<Tensors(const Tensors& inputs)>;

  /// `optimizers` are those that step in the body, all of them DeviceOptimizers. Throws UsageError for another
  /// optimizer, a communicator on the CPU or one that is not recordable (in which ranks share a GPU or NCCL is not
  /// used), and options out of range.
  StepGraph(Communicator& communicator, std::unique_ptr<DeviceGraph> graph,
            std::vector<std::reference_wrapper<torch::optim::Optimizer>> optimizers, Body body,
            StepGraphOptions options = {});
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;  // owns the graph
  StepGraph& operator=(const StepGraph&) = delete;

  /// Makes a step with `inputs`, tensors on the communicator's device: the body gets them in warm-up steps, and copies,
  /// made without waiting, in recorded ones. Returns the tensors that the body has returned, detached, on that device:
  /// their values are overwritten by the next step.
  ///
  /// Throws what the body throws. Throws UsageError, before anything else is done, for inputs of another number, shape,
  /// dtype or device than in the first step, for another stream, and within an Autocast that keeps casts of weights.
  /// Throws UsageError on all ranks if the step cannot be recorded on any of them, and then in all later calls. After
  /// an exception the stream can be used.
  const Tensors& step(const Tensors& inputs);

  /// Whether steps are replayed from now on.
  bool is_recorded() const { return phase_ == Phase::recorded; }

 private:
  enum class Phase { warm_up, recorded, failed };

  struct Signature {
    std::vector<std::int64_t> sizes;
    at::ScalarType type;
  };

  void check(const Tensors& inputs);
  void check_stream();
  Tensors run_body(const Tensors& inputs) const;
  void record(const Tensors& inputs);
  void record_body();
  void copy_inputs(const Tensors& inputs);
  void replay();

  Communicator& communicator_;
  const at::Device device_;
  const std::unique_ptr<DeviceGraph> graph_;
  std::vector<optim::DeviceOptimizer*> optimizers_;
  const Body body_;
  const StepGraphOptions options_;
  const std::shared_ptr<const std::string> label_;  // of the replays
  Phase phase_ = Phase::warm_up;
  int warm_up_steps_ = 0;                             // made
  std::optional<std::vector<Signature>> signatures_;  // of the first inputs
  std::optional<c10::Stream> stream_;
  Tensors inputs_;  // which the graph reads
  Tensors outputs_;
  at::Tensor nothing_;  // without elements
};

}  // namespace libtrain
