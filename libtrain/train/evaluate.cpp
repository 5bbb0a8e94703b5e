#include <libtrain/train/evaluate.hpp>

#include <limits>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace detail {

EvaluationSums::EvaluationSums(torch::nn::Module& model, const data::Sampler& sampler) : model_(model) {
  if (!sampler.covers_exactly_once()) {
    throw UsageError(
        "evaluate() would count some samples twice or not at all. Create its loader with Remainder::exact.");
  }
  were_training_.emplace_back(&model, model.is_training());
  for (const auto& module : model.modules(/*include_self=*/false)) {
    were_training_.emplace_back(module.get(), module->is_training());
  }
  model.eval();
}

// train() of a module also sets its submodules, which come after it in the list.
EvaluationSums::~EvaluationSums() {
  for (const auto& [module, was_training] : were_training_) module->train(was_training);
}

void EvaluationSums::add(const at::Tensor& measured, std::uint64_t samples) {
  if ((measured.dim() != 1 && measured.dim() != 2) || measured.size(0) != static_cast<std::int64_t>(samples)) {
    throw UsageError(text("evaluate() expects [B] or [B, K] values per batch, but was given ", measured.sizes(),
                          " for a batch of ", samples, ". Return a row for each sample."));
  }
  samples_ += measured.size(0);
  const at::Tensor sums = measured.detach().to(at::kCPU, at::kDouble).sum(0).reshape({-1});
  sums_ = sums_.defined() ? sums_ + sums : sums;
}

Evaluation EvaluationSums::over_ranks(Communicator& communicator) const {
  const CallPurpose purpose{communicator, "evaluate()"};
  const c10::Device device =
      communicator.supports(c10::kCPU) ? c10::Device(c10::kCPU) : model_.parameters().front().device();
  // A rank without samples does not know the number of values per sample.
  const std::int64_t none = std::numeric_limits<std::int64_t>::min();
  const std::int64_t known = sums_.defined() ? sums_.numel() : none;
  const auto bounds =
      at::stack({at::full({}, known, at::kLong), at::full({}, known == none ? none : -known, at::kLong)});
  const auto everywhere = bounds.to(device);
  communicator.all_reduce(everywhere, ReduceOp::maximum).wait();
  const at::Tensor agreed = everywhere.cpu();
  const auto [most, minus_least] = std::pair(agreed[0].item<std::int64_t>(), agreed[1].item<std::int64_t>());
  if (most != none && most != -minus_least) {
    throw UsageError(text("evaluate() got ", -minus_least, " values per sample on one rank and ", most,
                          " on another. Return the same number of values on every rank."),
                     ErrorScope::all_ranks);
  }
  const std::int64_t count = most == none ? 0 : most;
  const at::Tensor own = sums_.defined() ? sums_ : at::zeros({count}, at::kDouble);
  const auto all = at::cat({own, at::full({1}, static_cast<double>(samples_), at::kDouble)}).to(device);
  communicator.all_reduce(all).wait();
  const at::Tensor result = all.cpu();
  const auto* values = result.const_data_ptr<double>();
  return {.sums = {values, values + count}, .samples = static_cast<std::int64_t>(values[count])};
}

}  // namespace detail

}  // namespace libtrain
