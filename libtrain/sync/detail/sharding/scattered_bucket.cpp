#include <libtrain/sync/detail/sharding/scattered_bucket.hpp>

#include <algorithm>
#include <cmath>

#include <ATen/ops/tensor.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/dense_update.hpp>

namespace libtrain::detail {

namespace {

// After weighting by samples a mark is larger than this, unless a rank has fewer than one in 10^12 of them.
constexpr double kMinMark = 0x1p80;

}  // namespace

ScatteredBucket::ScatteredBucket(const BucketView& view, const Communicator& communicator)
    : view_(view), layout_(view.flat.numel(), communicator.rank(), communicator.world_size()) {
  require_shardable(view.names.front(), view.flat.scalar_type());
  const auto scattered = layout_.scattered();
  parts_ = view.flat.narrow(0, 0, scattered);
  part_ = view.flat.narrow(0, layout_.part_begin(), layout_.part());
  tail_ = view.flat.narrow(0, scattered, view.flat.numel() - scattered);
  for (const auto& gradient : view.gradients) {
    const auto begin = gradient.storage_offset() - view.flat.storage_offset();
    if (const auto mark = layout_.foreign_in(begin, gradient.numel())) marks_.push_back(*mark);
  }
  if (!view.flat.is_cpu() && !marks_.empty()) mark_indices_ = at::tensor(marks_, at::kLong).to(view.flat.device());
}

std::vector<Work> ScatteredBucket::start(Communicator& communicator) {
  phase_ = Phase::reducing;
  std::vector<Work> works;
  if (communicator.world_size() == 1) return works;
  if (part_.numel() > 0) works.push_back(communicator.reduce_scatter(parts_, part_, ReduceOp::average));
  if (tail_.numel() > 0) works.push_back(communicator.all_reduce(tail_, ReduceOp::average));
  return works;
}

void ScatteredBucket::mark_averaged() {
  phase_ = Phase::averaged;
  if (mark_indices_.defined()) {
    view_.flat.index_fill_(0, mark_indices_, kForeignMark);
    return;
  }
  optim::detail::with_element_type(view_.flat, [&]<typename T>(T) {
    auto* const values = view_.flat.mutable_data_ptr<T>();
    for (const auto mark : marks_) values[mark] = static_cast<T>(kForeignMark);
  });
}

// The present marks, or on a device those of the call before, if there was one.
std::optional<std::vector<double>> ScatteredBucket::read_marks(std::optional<HostCopy>& former) const {
  if (mark_indices_.defined()) {
    std::optional<std::vector<double>> read;
    if (former)
      read.emplace(former->get().const_data_ptr<double>(), former->get().const_data_ptr<double>() + marks_.size());
    former.emplace(view_.flat.index_select(0, mark_indices_).to(at::kDouble));
    return read;
  }
  std::vector<double> read;
  optim::detail::with_element_type(view_.flat, [&]<typename T>(T) {
    const auto* const values = view_.flat.const_data_ptr<T>();
    for (const auto mark : marks_) read.push_back(static_cast<double>(values[mark]));
  });
  return read;
}

bool ScatteredBucket::is_stale() {
  if (marks_.empty()) return false;
  if (phase_ == Phase::idle) return has_marks_of_former_plan();
  if (!is_averaged()) return false;
  const auto marks = read_marks(begun_with_);
  return marks && std::isfinite(marks->front()) && std::abs(marks->front()) >= kMinMark &&
         std::ranges::all_of(*marks, [&](double mark) { return mark == marks->front(); });
}

// Gradients move to the buckets of a new plan with their marks, which are elsewhere in these.
bool ScatteredBucket::has_marks_of_former_plan() {
  const auto greatest = view_.flat.amax().to(at::kDouble);
  if (!mark_indices_.defined()) {
    const auto value = greatest.item<double>();
    return std::isfinite(value) && value >= kMinMark;
  }
  begun_with_.emplace(greatest.expand({std::ssize(marks_)}).contiguous());  // read as marks by the next call
  return false;
}

bool ScatteredBucket::is_untouched() {
  if (marks_.empty()) return true;
  const auto marks = read_marks(stepped_with_);
  return !marks || std::ranges::all_of(*marks, [](double mark) { return mark == kForeignMark; });
}

void require_shardable(const std::string& parameter, at::ScalarType type) {
  if (type == at::kFloat || type == at::kDouble) return;
  throw UsageError(text("Parameter '", parameter, "' is of dtype ", type,
                        ", and ShardedOptimizer updates float32 and float64 only. Convert the module, or use another "
                        "optimizer on every rank, without ShardedOptimizer's wire format."));
}

}  // namespace libtrain::detail
