#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/data_loader.hpp>

namespace libtrain {

/// What an evaluation has measured, over all ranks.
struct Evaluation {
  std::vector<double> sums = {};  ///< of each measure over all samples
  std::int64_t samples = 0;

  /// Of measure number `measure` over all samples.
  double mean(std::size_t measure = 0) const { return sums.at(measure) / static_cast<double>(samples); }
};

namespace detail {

/// Adds up what the ranks have measured. A rank without samples has an undefined tensor. All ranks call it.
class EvaluationSums {
 public:
  /// Throws UsageError unless the loader gives each sample exactly once.
  EvaluationSums(torch::nn::Module& model, const data::Sampler& sampler);
  EvaluationSums(const EvaluationSums&) = delete;
  EvaluationSums& operator=(const EvaluationSums&) = delete;
  ~EvaluationSums();

  /// `measured` is of `samples` samples.
  void add(const at::Tensor& measured, std::uint64_t samples);
  Evaluation over_ranks(Communicator& communicator) const;

 private:
  torch::nn::Module& model_;
  std::vector<std::pair<torch::nn::Module*, bool>> were_training_;  // each module's own, parents first
  const c10::AutoGradMode no_gradients_{false};
  at::Tensor sums_;
  std::int64_t samples_ = 0;
};

}  // namespace detail

/// Measures the model on every sample of epoch 0 of `loader` once, in evaluation mode and without gradients, and adds
/// up over all ranks. `measure(batch)` returns a value for each sample of a batch, [B], or several, [B, K], of any
/// number type; it is not called for a batch of no samples. The accuracy of a classifier:
///
///     lt::evaluate(*model, held_out, context.communicator(), [&](const lt::data::Batch& batch) {
///       return model->forward(batch.images).argmax(1).eq(batch.labels);
///     }).mean()
///
/// All ranks call it. Sums are made in float64. Throws UsageError unless the loader has Remainder::exact, or a data
/// set that its ranks share evenly: a sample that is repeated or left out would falsify the result; UsageError for a
/// tensor of another shape or number of rows, and what the loader and `measure` throw. Afterwards each submodule is in
/// the mode in which it was.
template <typename B, typename Measure>
Evaluation evaluate(torch::nn::Module& model, data::DataLoaderOf<B>& loader, Communicator& communicator,
                    const Measure& measure) {
  detail::EvaluationSums sums(model, loader.sampler());
  auto epoch = loader.epoch(0);
  for (auto& batch : epoch) {
    if (epoch.samples_of_batch() > 0) sums.add(measure(batch), epoch.samples_of_batch());
  }
  return sums.over_ranks(communicator);
}

}  // namespace libtrain
