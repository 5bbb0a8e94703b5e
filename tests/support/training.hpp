#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <torch/optim/optimizer.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/models.hpp>

namespace libtrain::test {

/// What ranks do with their data. One process that holds all of it can do the same.
enum class Regime {
  plain,            ///< every rank has a batch of the same size
  accumulation,     ///< three micro-steps, two of them under no_sync()
  unused,           ///< one rank in turn, and now and then all, leave the model's branch out
  unused_found,     ///< the same, with find_unused()
  unused_declared,  ///< the same, with declare_unused()
  uneven_batches,   ///< rank r has batches of 2 (r + 1) samples
  uneven_counts,    ///< rank r has 2 (r + 1) batches an epoch, then joins, or goes on with empty ones for batch norm
};
std::string to_string(Regime regime);

/// A training run, of 20 steps or the whole epochs that hold them.
struct Recipe {
  std::string model = "mlp";  ///< see make_model
  at::ScalarType type = at::kFloat;
  std::string optimizer = "sgd";  ///< "sgd" with momentum, or "adamw"
  Regime regime = Regime::plain;
};

int steps_of(const Recipe& recipe, int world_size);

/// The recipe's model before its first step; its weights are a function of `seed`.
TestModel make_model(const Recipe& recipe, std::uint64_t seed);

/// An optimizer of the module's parameters, each once.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Recipe& recipe, const torch::nn::Module& module);

/// 3 for accumulation, otherwise 1. The gradient of a step is that of the mean over its micro-steps.
int micro_steps_of(Regime regime);

/// What `rank` is given for one micro-step; without rows where it has none.
TestBatch batch_of_rank(const Recipe& recipe, const TestModel& model, int step, int micro_step, int rank,
                        int world_size);

/// Parameters and floating buffers, end to end in the order of their names.
at::Tensor flat_weights(const torch::nn::Module& module);

struct Outcome {
  at::Tensor weights;          ///< see flat_weights
  at::Tensor gradients = {};   ///< of the last step, in the same order; 0 where undefined
  std::string undefined = {};  ///< the names of the parameters that were left without a gradient, step by step
};

/// The reference: plain LibTorch in one process, on the data of `world_size` ranks.
Outcome train_alone(const Recipe& recipe, int world_size);

enum class ZeroGrad { of_synchronizer, of_optimizer_to_none, of_optimizer_to_zero };

struct TogetherOptions {
  /// Several buckets even for tiny models, some of them of one gradient that is not copied. `unused` follows from the
  /// regime, `wire_format` from the function below.
  SynchronizerOptions synchronizer = {
      .buckets = {.bucket_bytes = 2000, .first_bucket_bytes = 300, .alone_bytes = 1000}};
  /// Called on each rank, since one object serves one synchronizer. Null: gradients travel as they are.
  std::function<std::shared_ptr<WireFormat>()> make_wire_format = {};
  ZeroGrad zero_grad = ZeroGrad::of_synchronizer;
};

/// This rank's part of the same, with a GradientSynchronizer, and SyncBatchNorm for batch norm. All ranks must call it.
Outcome train_together(const Recipe& recipe, Communicator& communicator, const TogetherOptions& options = {});

}  // namespace libtrain::test
