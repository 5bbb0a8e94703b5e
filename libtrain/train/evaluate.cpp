#include <libtrain/train/evaluate.hpp>

#include <algorithm>
#include <string>

#include <ATen/ops/sum.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/train/detail/number_bytes.hpp>

namespace libtrain {

namespace detail {

void require_every_sample_once(const data::Sampler& sampler) {
  if (!sampler.covers_exactly_once()) {
    throw UsageError(
        "evaluate() would count some samples twice or not at all. Create its loader with Remainder::exact.");
  }
}

EvaluationMode::EvaluationMode(torch::nn::Module& model) {
  were_training_.emplace_back(&model, model.is_training());
  for (const auto& module : model.modules(/*include_self=*/false)) {
    were_training_.emplace_back(module.get(), module->is_training());
  }
  model.eval();
}

// train() of a module also sets its submodules, which come after it in the list.
EvaluationMode::~EvaluationMode() {
  for (const auto& [module, was_training] : were_training_) module->train(was_training);
}

void EvaluationSums::add(const at::Tensor& measured, std::uint64_t samples) {
  if ((measured.dim() != 1 && measured.dim() != 2) || measured.size(0) != static_cast<std::int64_t>(samples)) {
    throw UsageError(text("evaluate() expects [B] or [B, K] values per batch, but was given ", measured.sizes(),
                          " for a batch of ", samples, ". Return a row for each sample."));
  }
  samples_ += measured.size(0);
  // On the tensor's device: a copy to the host after each batch would wait for a GPU.
  const at::Tensor sums = measured.detach().to(at::kDouble).sum(0).reshape({-1});
  sums_ = sums_.defined() ? sums_ + sums : sums;
}

Evaluation EvaluationSums::over_ranks(Communicator& communicator) const {
  const CallPurpose purpose{communicator, "evaluate()"};
  std::vector<double> mine{static_cast<double>(samples_)};
  if (sums_.defined()) {
    const at::Tensor sums = sums_.cpu();
    const auto* values = sums.const_data_ptr<double>();
    mine.insert(mine.end(), values, values + sums.numel());
  }
  Evaluation result;
  // All ranks add in the same order.
  for (const auto& bytes : communicator.all_gather_bytes(to_bytes(mine))) {
    const auto of_rank = numbers_of(bytes);
    // A rank without samples does not know the number of values per sample.
    if (of_rank.front() == 0) continue;
    if (result.samples == 0) result.sums.resize(of_rank.size() - 1);
    if (result.sums.size() != of_rank.size() - 1) {
      const auto [least, most] = std::minmax({result.sums.size(), of_rank.size() - 1});
      throw UsageError(text("evaluate() got ", least, " values per sample on one rank and ", most,
                            " on another. Return the same number of values on every rank."),
                       ErrorScope::all_ranks);
    }
    result.samples += static_cast<std::int64_t>(of_rank.front());
    for (std::size_t value = 0; value < result.sums.size(); ++value) result.sums[value] += of_rank[value + 1];
  }
  return result;
}

std::vector<std::vector<double>> gather_numbers(const std::vector<double>& numbers, Communicator& communicator) {
  const CallPurpose purpose{communicator, "merge_over_ranks()"};
  std::vector<std::vector<double>> of_ranks;
  for (const auto& bytes : communicator.all_gather_bytes(to_bytes(numbers))) of_ranks.push_back(numbers_of(bytes));
  return of_ranks;
}

}  // namespace detail

}  // namespace libtrain
