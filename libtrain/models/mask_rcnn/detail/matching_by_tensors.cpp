#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/models/mask_rcnn/detail/matching.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

namespace libtrain::models::detail {

namespace {

// libtrain::detail::mix_bits for int64, whose arithmetic wraps and whose shifts keep the sign.
at::Tensor mixed_bits(at::Tensor bits) {
  const auto shifted_right = [](const at::Tensor& value, std::int64_t places) {
    return at::bitwise_right_shift(value, places).bitwise_and((std::int64_t{1} << (64 - places)) - 1);
  };
  bits = bits.bitwise_xor(shifted_right(bits, 30)) * static_cast<std::int64_t>(0xbf58476d1ce4e5b9U);
  bits = bits.bitwise_xor(shifted_right(bits, 27)) * static_cast<std::int64_t>(0x94d049bb133111ebU);
  return bits.bitwise_xor(shifted_right(bits, 31));
}

}  // namespace

at::Tensor match_boxes_by_matrix(const at::Tensor& truth, const at::Tensor& boxes, double at_least, double below,
                                 bool keep_best) {
  if (truth.size(0) == 0) return at::full({boxes.size(0)}, kBackground, boxes.options().dtype(at::kLong));
  const at::Tensor overlaps = box_iou(truth.to(at::kFloat), boxes.to(at::kFloat));
  const auto [largest, number] = overlaps.max(0);
  at::Tensor is_match = largest.ge(at_least);  // in float32, as in torchvision
  if (keep_best) {
    const at::Tensor best = std::get<0>(overlaps.max(1, /*keepdim=*/true));
    is_match = is_match.logical_or(overlaps.eq(best).logical_and(best.gt(0)).any(0));
  }
  const at::Tensor unmatched = at::where(largest.lt(below), at::full({}, kBackground, number.options()),
                                         at::full({}, kBetween, number.options()));
  return at::where(is_match, number, unmatched);
}

at::Tensor sample_labels_by_keys(const at::Tensor& labels, std::int64_t count, double positive_fraction,
                                 std::int64_t seed) {
  constexpr std::int64_t kSign = std::numeric_limits<std::int64_t>::min();
  // As unsigned numbers: with the sign turned around, their order is that of the signed ones.
  const at::Tensor keys = mixed_bits(at::arange(labels.size(0), labels.options()) + seed).bitwise_xor(kSign);
  const auto choose = [&](const at::Tensor& candidates, std::int64_t wanted) {
    const at::Tensor numbers = candidates.nonzero().squeeze(1);
    const std::int64_t taken = std::min(wanted, numbers.size(0));
    const at::Tensor first =
        std::get<1>(keys.index_select(0, numbers).topk(taken, 0, /*largest=*/false, /*sorted=*/false));
    return numbers.index_select(0, first);
  };
  const auto most_positive = static_cast<std::int64_t>(static_cast<double>(count) * positive_fraction);
  const at::Tensor positive = choose(labels.gt(0), most_positive);
  const at::Tensor negative = choose(labels.eq(0), count - positive.size(0));
  return std::get<0>(at::cat({positive, negative}).sort());
}

}  // namespace libtrain::models::detail
