#include <libtrain/sync/wire_format.hpp>

#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

class InPlaceReduction final : public Reduction {
 public:
  explicit InPlaceReduction(Work work) : work_(std::move(work)) {}

  bool advance() override {
    work_.wait();
    return true;
  }

  void abandon() override { work_.wait(); }

  std::optional<WorkTimes> times() const override { return work_.times(); }

 private:
  Work work_;
};

}  // namespace

std::unique_ptr<Reduction> average_in_place(const at::Tensor& flat, Communicator& communicator) {
  return std::make_unique<InPlaceReduction>(communicator.all_reduce(flat, ReduceOp::average));
}

std::optional<WorkTimes> times_from(const Work& first, const Work& last) {
  const auto begin = first.times();
  const auto end = last.times();
  if (!begin || !end) return {};
  return WorkTimes{.called = begin->called, .began = begin->began, .ended = end->ended};
}

void require_planned(const BucketView& bucket, std::size_t planned) {
  if (bucket.index < planned) return;
  throw UsageError(text("WireFormat::start() was called for bucket ", bucket.index, ", but plan() was called with ",
                        planned,
                        " buckets. Call plan() whenever the buckets change, and use one format object for one "
                        "synchronizer."));
}

namespace detail {

WireFormatUse::WireFormatUse(WireFormat* format) : format_(format) {
  if (format == nullptr || !format->is_in_use_.exchange(true)) return;
  throw UsageError(
      text("The wire format '", format->name(),
           "' is given to a second synchronizer, but an object of it keeps what belongs to one. Create one "
           "for each synchronizer and rank."));
}

WireFormatUse::~WireFormatUse() {
  if (format_ != nullptr) format_->is_in_use_ = false;
}

}  // namespace detail

}  // namespace libtrain
