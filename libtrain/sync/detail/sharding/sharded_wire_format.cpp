#include <libtrain/sync/detail/sharding/sharded_wire_format.hpp>

#include <optional>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

class ScatterReduction final : public Reduction {
 public:
  ScatterReduction(std::shared_ptr<ScatteredBucket> bucket, Communicator& communicator)
      : bucket_(std::move(bucket)), works_(bucket_->start(communicator)) {}

  bool advance() override {
    for (auto& work : works_) work.wait();
    bucket_->mark_averaged();
    return true;
  }

  void abandon() override {
    for (auto& work : works_) work.wait();
  }

  std::optional<WorkTimes> times() const override {
    return works_.empty() ? std::nullopt : times_from(works_.front(), works_.back());
  }

 private:
  const std::shared_ptr<ScatteredBucket> bucket_;
  std::vector<Work> works_;
};

}  // namespace

void ShardedWireFormat::plan(const std::vector<BucketView>& buckets, Communicator& communicator) {
  buckets_.clear();
  for (const auto& bucket : buckets) buckets_.push_back(std::make_shared<ScatteredBucket>(bucket, communicator));
  communicator_ = &communicator;
  ++plans_;
}

// Called inside backward(), where an exception on this rank only would leave its peers waiting: mistakes are kept until
// all ranks call the optimizer.
std::unique_ptr<Reduction> ShardedWireFormat::start(const BucketView& view, Communicator& communicator) {
  require_planned(view, buckets_.size());
  const auto& bucket = buckets_[view.index];
  if (is_gathering_) {
    mistake_ =
        "A round began before all updated parameters had arrived from the other ranks. With "
        "ParameterGather::overlapped, call ShardedOptimizer::wait_for_parameters() before the next forward pass.";
  } else if (bucket->is_stale()) {
    mistake_ =
        text("The gradient of parameter '", view.names.front(),
             "' was added to that of the round before, of which each rank has the average of its own shard only. "
             "Call zero_grad() between wait() and the next round, and accumulate under no_sync().");
  }
  return std::make_unique<ScatterReduction>(bucket, communicator);
}

Communicator& ShardedWireFormat::communicator() const {
  if (communicator_ != nullptr) return *communicator_;
  throw UsageError(
      "ShardedOptimizer has no synchronizer yet. Create a GradientSynchronizer of the same module with "
      "{.wire_format = optimizer.wire_format()} first.");
}

void ShardedWireFormat::require_right_rounds() {
  const auto mistake = std::exchange(mistake_, std::string{});
  if (!mistake.empty()) throw UsageError(mistake);
}

}  // namespace libtrain::detail
