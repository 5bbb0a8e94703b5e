#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/base/trace.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_plan.hpp>
#include <libtrain/sync/detail/gradient_memory/gradient_memory.hpp>
#include <libtrain/sync/detail/module_parameters.hpp>
#include <libtrain/sync/synchronization_statistics.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// One bucket: a flat tensor in which each member's gradient has its place, laid out like its parameter, and the
/// reduction of a round. A round is keep() or adopt() for each gradient, start(), advance() until it is true,
/// release().
class GradientBucket {
 public:
  /// All members are of one dtype. A bucket of one member that `is_alone` may lie in other memory in each round. Throws
  /// as Communicator::allocate does.
  GradientBucket(std::size_t index, const std::vector<const ModuleParameter*>& members, GradientMemory& memory,
                 bool is_alone);

  /// What a wire format gets; without `flat` and `gradients` where memory is taken anew in each round.
  const BucketView& view() const { return view_; }

  /// What its collectives are called in errors and traces.
  void set_label(const std::string& label) { label_ = std::make_shared<const std::string>(label); }

  /// The place of the member-th gradient: its parameter's shape, and its strides where those are dense. Not an autograd
  /// view: `Optimizer::zero_grad(false)` detaches gradients in place, which views refuse. Throws as
  /// BucketMemory::flat().
  const at::Tensor& place(std::size_t member);

  /// Whether `gradient` is in its place already.
  bool holds(std::size_t member, const at::Tensor& gradient) const;

  /// Copies the gradient, of its place's shape and dtype, to its place, and makes it live there.
  void keep(std::size_t member, at::Tensor& gradient);

  /// Makes where `gradient` lies its place; false where that cannot be. See BucketMemory::adopt().
  bool adopt(const at::Tensor& gradient, const at::Tensor& incoming);

  /// Starts the reduction. Gradients count `weight` times in the average; with 0 they need not even be finite.
  void start(WireFormat& format, Communicator& communicator, double weight);
  bool is_started() const { return reduction_ != nullptr; }

  /// Reduction::advance().
  bool advance(Communicator& communicator);

  /// What the round's reduction has cost; `trace` may be null. Returns its seconds.
  double record(TraceSink* trace);

  /// Ends the round.
  void release();

  const BucketStatistics& statistics() const { return statistics_; }

 private:
  const std::vector<at::Tensor>& places();

  BucketView view_;
  std::vector<at::Tensor> shapes_;  // of the gradients: sizes, strides and dtype, without memory
  std::vector<at::Tensor> places_;  // apart from the view's: what a wire format does is not a change by the user
  std::unique_ptr<BucketMemory> memory_;
  std::shared_ptr<const std::string> label_;
  std::unique_ptr<Reduction> reduction_;
  BucketStatistics statistics_;
};

/// The buckets of a plan, reduced in its order: start() for each, then wait().
class GradientBuckets {
 public:
  /// `format` and `communicator` must outlive this; `trace` may be null.
  GradientBuckets(WireFormat& format, Communicator& communicator, TraceSink* trace);

  /// Makes the buckets of a plan whose members are indices into `parameters`, instead of those there are. Large
  /// gradients, those alone in a bucket of at least `alone_bytes`, stay where autograd leaves them. Gradients that lie
  /// in the former buckets keep their memory alive.
  void make(const std::vector<Bucket>& plan, const ModuleParameters& parameters, std::size_t alone_bytes,
            const std::string& owner);

  /// `owner` says whose buckets these are, where a process has several synchronizers: ranks that mix them up must not
  /// average one with another. The same on every rank; "" for the first.
  void set_owner(const std::string& owner);

  GradientBucket& operator[](std::size_t index) { return buckets_[index]; }

  /// Gradients that this thread's backward() makes between the two may be adopted.
  void begin_backward();
  void end_backward();

  /// Starts to reduce a bucket, in which this rank's gradients count `weight` times.
  void start(std::size_t index, double weight) { buckets_[index].start(format_, communicator_, weight); }

  /// Waits for all buckets, which were started; then their gradients are the average on every rank.
  void wait();

  /// Ends a round.
  void release();

  void add_to(SynchronizationStatistics& statistics) const;

 private:
  WireFormat& format_;
  Communicator& communicator_;
  TraceSink* trace_;
  std::unique_ptr<GradientMemory> memory_;
  std::vector<GradientBucket> buckets_;
  double seconds_reducing_ = 0;  // of former plans, too
};

}  // namespace libtrain::detail
