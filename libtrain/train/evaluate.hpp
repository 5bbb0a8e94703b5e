#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/data_loader.hpp>

namespace libtrain {

/// The result of evaluate() over all ranks.
struct Evaluation {
  std::vector<double> sums = {};  ///< sum of each value over all samples
  std::int64_t samples = 0;

  /// Mean of value number `measure` over all samples.
  double mean(std::size_t measure = 0) const { return sums.at(measure) / static_cast<double>(samples); }
};

namespace detail {

/// While it exists, the module is in evaluation mode, and this thread computes no gradients. Its destructor gives each
/// submodule its previous mode.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model);
  EvaluationMode(const EvaluationMode&) = delete;  // it restores once
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  ~EvaluationMode();

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> were_training_;  // the mode of each module, parents first
  const c10::AutoGradMode no_gradients_{false};
};

/// Throws UsageError unless the sampler covers each sample exactly once.
void require_every_sample_once(const data::Sampler& sampler);

/// Sums the values of all ranks. The tensor of a rank without samples is undefined. All ranks must use it.
class EvaluationSums {
 public:
  /// Adds the values of `samples` samples.
  void add(const at::Tensor& measured, std::uint64_t samples);
  Evaluation over_ranks(Communicator& communicator) const;

 private:
  at::Tensor sums_;
  std::int64_t samples_ = 0;
};

/// The numbers of each rank. All ranks must call it.
std::vector<std::vector<double>> gather_numbers(const std::vector<double>& numbers, Communicator& communicator);

/// As evaluate(), in the modes that modules have; std::nullopt if `must_stop()` is true after a batch, which must be
/// the same on all ranks. All ranks call it equally often.
template <typename B, typename Measure, typename MustStop>
std::optional<Evaluation> evaluate_until(data::DataLoaderOf<B>& loader, Communicator& communicator, Measure& measure,
                                         const MustStop& must_stop) {
  require_every_sample_once(loader.sampler());
  EvaluationSums sums;
  auto epoch = loader.epoch(0);
  for (auto& batch : epoch) {
    if (epoch.samples_of_batch() > 0) sums.add(measure(batch), epoch.samples_of_batch());
    if (must_stop()) return std::nullopt;
  }
  // Remainder::uneven may leave this rank with one batch less.
  if (loader.sampler().batches() < loader.sampler().steps() && must_stop()) return std::nullopt;
  return sums.over_ranks(communicator);
}

}  // namespace detail

/// Evaluates the model on every sample of epoch 0 of `loader` once, in evaluation mode and without gradients, and sums
/// over all ranks. `measure(batch)` returns one value for each sample of a batch, [B], or several, [B, K], of any
/// number type; it is not called for an empty batch. The accuracy of a classifier:
///
///     lt::evaluate(*model, held_out, context.communicator(), [&](const lt::data::Batch& batch) {
///       return model->forward(batch.images).argmax(1).eq(batch.labels);
///     }).mean()
///
/// All ranks must call it. Sums are in float64. Throws UsageError unless the loader reads each sample once, because a
/// repeated or omitted sample would falsify the result: with Remainder::exact or uneven; without `max_tokens` also with
/// pad if the ranks share the data set evenly, and drop if global batches do; with it also with pad on one rank;
/// UsageError for a tensor of another shape or number of rows; and what the loader and `measure` throw. Afterwards each
/// submodule has its previous mode.
template <typename B, typename Measure>
Evaluation evaluate(torch::nn::Module& model, data::DataLoaderOf<B>& loader, Communicator& communicator,
                    const Measure& measure) {
  const detail::EvaluationMode mode(model);
  return *detail::evaluate_until(loader, communicator, measure, [] { return false; });
}

/// Adds what the other ranks have counted, so that all ranks have the same: `counts` is a ClassCounts or another class
/// of libtrain/observe/task_metrics.hpp, of samples that no other rank has counted: not a second time. All ranks must
/// call it. Throws UsageError, on all ranks, if their counts
/// differ in kind, such as in the number of classes.
template <typename Counts>
void merge_over_ranks(Counts& counts, Communicator& communicator) {
  const auto of_ranks = detail::gather_numbers(counts.numbers(), communicator);
  const auto own = static_cast<std::size_t>(communicator.rank());
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (rank != own) counts.merge(of_ranks[rank]);
  }
}

/// Calls `add(batch, counts)` for each batch of epoch 0 of `loader` that has samples, and then merge_over_ranks(), for
/// metrics that are not means over samples. An evaluation of a Trainer:
///
///     trainer.evaluate_with([&](const std::function<bool()>& must_stop) -> Values {
///       lt::ClassCounts counts(classes);
///       if (!lt::count_every_sample(held_out, communicator, counts, add, must_stop)) return std::nullopt;
///       return {{{"f1", counts.macro_f1()}}};
///     });
///
/// Returns false, with counts that are of no use, once `must_stop()` is true after a batch, which must be the same on
/// all ranks. All ranks must call it, with modules in the mode that they want. Throws as evaluate(), and UsageError for
/// counts that have samples: use new ones for each loader.
template <typename B, typename Counts, typename Add, typename MustStop>
bool count_every_sample(data::DataLoaderOf<B>& loader, Communicator& communicator, Counts& counts, const Add& add,
                        const MustStop& must_stop) {
  detail::require_every_sample_once(loader.sampler());
  if (counts.samples() > 0) {
    throw UsageError(
        "count_every_sample() was given counts that have samples, which each rank would add again. Use new ones.");
  }
  auto epoch = loader.epoch(0);
  for (auto& batch : epoch) {
    if (epoch.samples_of_batch() > 0) add(batch, counts);
    if (must_stop()) return false;
  }
  // Remainder::uneven may leave this rank with one batch less.
  if (loader.sampler().batches() < loader.sampler().steps() && must_stop()) return false;
  merge_over_ranks(counts, communicator);
  return true;
}

}  // namespace libtrain
