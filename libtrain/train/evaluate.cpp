#include <libtrain/train/evaluate.hpp>

#include <cstddef>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace detail {

EvaluationSums::EvaluationSums(torch::nn::Module& model, const data::Sampler& sampler)
    : model_(model), was_training_(model.is_training()) {
  if (!sampler.covers_exactly_once()) {
    throw UsageError("evaluate() would count some samples twice or not at all: give its loader Remainder::exact.");
  }
  model.eval();
}

void EvaluationSums::add(const at::Tensor& measured) {
  if (measured.dim() != 1 && measured.dim() != 2) {
    throw UsageError(text("evaluate() wants [B] or [B, K] values of each batch, but was given ", measured.sizes(),
                          ": return a row for each sample."));
  }
  samples_ += measured.size(0);
  const at::Tensor sums = measured.detach().to(at::kCPU, at::kDouble).sum(0).reshape({-1});
  sums_ = sums_.defined() ? sums_ + sums : sums;
}

Evaluation EvaluationSums::over_ranks(Communicator& communicator) const {
  const CallPurpose purpose{communicator, "evaluate()"};
  const c10::Device device =
      communicator.supports(c10::kCPU) ? c10::Device(c10::kCPU) : model_.parameters().front().device();
  // A rank without samples does not know how many measures there are.
  const auto measures = at::full({1}, sums_.defined() ? sums_.numel() : 0, at::TensorOptions(device).dtype(at::kLong));
  communicator.all_reduce(measures, ReduceOp::maximum).wait();
  const std::int64_t count = measures.item<std::int64_t>();
  const at::Tensor own = sums_.defined() ? sums_ : at::zeros({count}, at::kDouble);
  if (own.numel() != count) {
    throw UsageError(text("evaluate() has ", own.numel(), " measures on rank ", communicator.rank(), ", but ", count,
                          " on another one: measure the same everywhere."));
  }
  const auto all = at::cat({own, at::full({1}, static_cast<double>(samples_), at::kDouble)}).to(device);
  communicator.all_reduce(all).wait();
  const at::Tensor result = all.cpu();
  const auto* values = result.const_data_ptr<double>();
  return {.sums = {values, values + count}, .samples = static_cast<std::int64_t>(values[count])};
}

}  // namespace detail

}  // namespace libtrain
