#include <libtrain/sync/wire/power_sgd.hpp>

#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/wire/detail/low_rank_bucket.hpp>

namespace libtrain {

namespace {

using detail::LowRankBucket;

// States: P is being reduced (from construction), Q is being reduced (after the first advance), done.
class PowerSgdReduction final : public Reduction {
 public:
  PowerSgdReduction(std::shared_ptr<LowRankBucket> bucket, Communicator& communicator)
      : bucket_(std::move(bucket)), communicator_(communicator) {
    first_ = bucket_->send_p(communicator_);
  }

  bool advance() override {
    if (std::exchange(sent_q_, true)) {
      bucket_->reconstruct();
      return true;
    }
    last_ = bucket_->send_q(communicator_);
    return false;
  }

  void abandon() override { bucket_->abandon(); }

  std::optional<WorkTimes> times() const override { return times_from(first_, last_); }

 private:
  const std::shared_ptr<LowRankBucket> bucket_;
  Communicator& communicator_;
  Work first_;
  Work last_;
  bool sent_q_ = false;
};

}  // namespace

struct PowerSgdWireFormat::State {
  detail::LowRankMemories memories;
  std::vector<std::shared_ptr<LowRankBucket>> buckets;  // null: sent unchanged
  std::int64_t rounds = 0;                              // that have begun
};

PowerSgdWireFormat::PowerSgdWireFormat(PowerSgdOptions options) : options_(options), state_(std::make_unique<State>()) {
  if (options.rank < 1) {
    throw UsageError(text("PowerSgdOptions::rank is ", options.rank, "; give 1 or more, such as 4."));
  }
  if (options.start_round < 0) {
    throw UsageError(text("PowerSgdOptions::start_round is ", options.start_round, "; give 0 rounds or more."));
  }
  if (!(options.min_compression_rate >= 1)) {
    throw UsageError(text("PowerSgdOptions::min_compression_rate is ", options.min_compression_rate,
                          "; give 1 or more, since larger factors would not save anything."));
  }
}

PowerSgdWireFormat::~PowerSgdWireFormat() = default;

std::string PowerSgdWireFormat::signature() const {
  return text(name(), ", start round ", options_.start_round, ", minimum compression rate ",
              options_.min_compression_rate, options_.error_feedback ? "" : ", no error feedback",
              options_.warm_start ? "" : ", no warm start", ", seed ", options_.seed);
}

std::string PowerSgdWireFormat::name() const {
  return text("powersgd of rank ", options_.rank);
}

void PowerSgdWireFormat::plan(const std::vector<BucketView>& buckets, Communicator& communicator) {
  state_->buckets.clear();
  for (const auto& bucket : buckets) {
    const bool compresses = communicator.world_size() > 1 && LowRankBucket::compresses(bucket, options_);
    state_->buckets.push_back(
        compresses ? std::make_shared<LowRankBucket>(bucket, options_, state_->memories, communicator) : nullptr);
  }
}

std::unique_ptr<Reduction> PowerSgdWireFormat::start(const BucketView& bucket, Communicator& communicator) {
  require_planned(bucket, state_->buckets.size());
  if (bucket.index == 0) ++state_->rounds;
  const auto& low_rank = state_->buckets[bucket.index];
  if (!low_rank || state_->rounds <= options_.start_round) return average_in_place(bucket.flat, communicator);
  return std::make_unique<PowerSgdReduction>(low_rank, communicator);
}

}  // namespace libtrain
