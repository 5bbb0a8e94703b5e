#include <libtrain/sync/wire/half_precision.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

constexpr double kMaxPredivide = 1 << 20;

class HalfPrecisionReduction final : public Reduction {
 public:
  HalfPrecisionReduction(at::Tensor flat, at::Tensor wire, double factor, Work work)
      : flat_(std::move(flat)), wire_(std::move(wire)), factor_(factor), work_(std::move(work)) {}

  bool advance() override {
    work_.wait();
    const at::NoGradGuard no_grad;
    flat_.copy_(wire_);
    if (factor_ != 1) flat_.mul_(factor_);
    return true;
  }

  void abandon() override { work_.wait(); }

  std::optional<WorkTimes> times() const override { return work_.times(); }

 private:
  const at::Tensor flat_;
  const at::Tensor wire_;
  const double factor_;
  Work work_;
};

bool is_wide(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble;
}

}  // namespace

HalfPrecisionWireFormat::HalfPrecisionWireFormat(HalfPrecisionOptions options) : options_(options) {
  if (options.type != at::kBFloat16 && options.type != at::kHalf) {
    throw UsageError(text("HalfPrecisionOptions::type is ", options.type, "; give at::kBFloat16 or at::kHalf."));
  }
  if (!(options.predivide >= 1 / kMaxPredivide && options.predivide <= kMaxPredivide)) {
    throw UsageError(text("HalfPrecisionOptions::predivide is ", options.predivide,
                          "; give a number from 2^-20 to 2^20, such as the square root of the world size."));
  }
  if (options.min_elements < 0) {
    throw UsageError(
        text("HalfPrecisionOptions::min_elements is ", options.min_elements, "; give 0 elements or more."));
  }
}

std::string HalfPrecisionWireFormat::signature() const {
  return text(name(), ", predivide ", options_.predivide, ", min_elements ", options_.min_elements);
}

std::string HalfPrecisionWireFormat::name() const {
  return options_.type == at::kHalf ? "float16" : "bfloat16";
}

bool HalfPrecisionWireFormat::may_overflow() const {
  return options_.type == at::kHalf || options_.predivide < 1 || narrows_float64_;
}

void HalfPrecisionWireFormat::plan(const std::vector<BucketView>& buckets, Communicator& communicator) {
  wires_.assign(buckets.size(), at::Tensor{});
  narrows_float64_ = false;
  if (communicator.world_size() == 1) return;
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    const auto& flat = buckets[index].flat;
    if (!is_wide(flat.scalar_type()) || flat.numel() < options_.min_elements) continue;
    wires_[index] = communicator.allocate(flat.numel(), options_.type);
    narrows_float64_ = narrows_float64_ || flat.scalar_type() == at::kDouble;
  }
}

std::unique_ptr<Reduction> HalfPrecisionWireFormat::start(const BucketView& bucket, Communicator& communicator) {
  require_planned(bucket, wires_.size());
  const auto& wire = wires_[bucket.index];
  if (!wire.defined()) return average_in_place(bucket.flat, communicator);

  const at::NoGradGuard no_grad;
  // In the wide type, before values are narrowed and could overflow.
  if (options_.predivide != 1) bucket.flat.mul_(1 / options_.predivide);
  wire.copy_(bucket.flat);

  const bool averages = options_.predivide == 1;
  const double factor = averages ? 1 : options_.predivide / communicator.world_size();
  auto work = communicator.all_reduce(wire, averages ? ReduceOp::average : ReduceOp::sum);
  return std::make_unique<HalfPrecisionReduction>(bucket.flat, wire, factor, std::move(work));
}

}  // namespace libtrain
