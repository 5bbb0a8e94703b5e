#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/trace.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_flags.hpp>
#include <libtrain/sync/bucket_plan.hpp>
#include <libtrain/sync/gradient_bucket.hpp>
#include <libtrain/sync/synchronization_statistics.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// The memory of all buckets, and their reductions in one order. A group of one rank that sends nothing has no memory:
/// gradients stay where autograd leaves them.
///
/// In each round, every bucket is started once, in order, and finish() waits for all of them.
class BucketReducer {
 public:
  /// Without a wire format gradients travel as they are.
  BucketReducer(Communicator& communicator, std::shared_ptr<WireFormat> wire_format, TraceSink* trace);

  /// Says whose buckets these are, where a process has several synchronizers: ranks that mix them up must not average
  /// one with another. The same on every rank; "" for the first.
  void set_owner(const std::string& owner);

  ~BucketReducer();
  BucketReducer(const BucketReducer&) = delete;  // reductions under way refer to its buckets
  BucketReducer& operator=(const BucketReducer&) = delete;

  /// Forgets the buckets, and their memory where no gradient uses it.
  void clear();

  /// Makes memory for new buckets; element k of `members` has those of `plan[k]`. A bucket of one gradient of at least
  /// `alone_bytes` is where autograd leaves that gradient: BucketLimits::kNever for wire formats, which have memory of
  /// their own.
  void plan(const std::vector<Bucket>& plan, const std::vector<std::vector<BucketMember>>& members,
            std::size_t alone_bytes);

  bool has_memory() const { return wire_format_ != nullptr; }
  std::size_t size() const { return flags_.size(); }

  /// Where a gradient lives in this round; only with memory.
  const at::Tensor& place(std::size_t bucket, std::size_t member) { return buckets_[bucket].place(member); }

  /// See GradientBucket.
  bool holds(std::size_t bucket, std::size_t member, const at::Tensor& gradient) const {
    return buckets_[bucket].holds(member, gradient);
  }
  bool adopt(std::size_t bucket, const at::Tensor& gradient, const at::Tensor& incoming) {
    return bucket >= started_ && buckets_[bucket].adopt(gradient, incoming);
  }

  /// The gradients that this thread's backward() makes may be adopted, until expect_no_gradients(), finish() or
  /// reset().
  void expect_gradients();
  void expect_no_gradients();

  /// This rank's before start(), all ranks' after finish().
  BucketFlags& flags(std::size_t bucket) { return flags_[bucket]; }

  std::size_t started() const { return started_; }

  /// Starts the next bucket. Its gradients count `weight` times in the average; with 0 they need not even be finite.
  void start_next(double weight);

  /// Waits for all buckets; then their gradients and flags are the average on every rank.
  void finish();

  /// Begins a round.
  void reset();

  /// Whether finite gradients may have become infinite on the way, by the format or by a weight.
  bool may_overflow() const { return has_memory() && (wire_format_->may_overflow() || has_16_bits_); }

  std::string format_signature() const { return has_memory() ? wire_format_->signature() : "none"; }

  void add_to(SynchronizationStatistics& statistics) const;

 private:
  void make_labels();
  void weigh(const at::Tensor& gradients, double weight);
  void note(std::size_t bucket);
  void drop_blocks();

  Communicator& communicator_;
  std::shared_ptr<WireFormat> wire_format_;
  TraceSink* trace_;
  std::vector<GradientBucket> buckets_;
  std::vector<BucketFlags> flags_;
  std::string owner_;
  std::vector<std::shared_ptr<const std::string>> labels_;
  std::vector<std::unique_ptr<Reduction>> reductions_;
  std::vector<BucketStatistics> statistics_;
  double seconds_reducing_ = 0;  // of former plans, too
  std::shared_ptr<GradientBlocks> blocks_;
  bool has_16_bits_ = false;
  std::size_t started_ = 0;
};

}  // namespace libtrain::detail
