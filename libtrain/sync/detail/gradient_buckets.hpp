#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <libtrain/base/trace.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_plan.hpp>
#include <libtrain/sync/detail/gradient_memory/gradient_memory.hpp>
#include <libtrain/sync/detail/module_parameters.hpp>
#include <libtrain/sync/synchronization_statistics.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// One bucket: a flat tensor in which each member's gradient has its place, laid out like its parameter, and the
/// reduction of a round. A round is keep(), adopt() or clear() for each gradient, gather(), start(), advance() until it
/// returns true, release().
///
/// On a device an operation costs the host more than the copy of a small gradient takes: there keep() and clear() only
/// remember what gather() then does for all gradients at once.
class GradientBucket {
 public:
  /// All members are of one dtype. `is_zero_copy`: a bucket of one member whose memory may be different in each round.
  /// Throws as Communicator::allocate does.
  GradientBucket(std::size_t index, const std::vector<const ModuleParameter*>& members, GradientMemory& memory,
                 bool is_zero_copy);

  /// The view for the wire format; without `flat` and `gradients` if memory is different in each round.
  const BucketView& view() const { return view_; }

  /// The name of its collectives in errors and traces.
  void set_label(const std::string& label) { label_ = std::make_shared<const std::string>(label); }

  /// The place of the member-th gradient: its parameter's shape, and its strides if those are dense. Not an autograd
  /// view: `Optimizer::zero_grad(false)` detaches gradients in place, which views refuse. Throws as
  /// BucketMemory::flat().
  const at::Tensor& place(std::size_t member);

  /// Whether `gradient` is in its place already.
  bool holds(std::size_t member, const at::Tensor& gradient) const;

  /// Copies the gradient, of its place's shape and dtype, to its place, and makes it refer to the place: at once, or on
  /// a device in gather(), until which `gradient` must exist. There it may come from any stream, this thread's current
  /// one.
  void keep(std::size_t member, at::Tensor& gradient);

  /// For a gradient in its place to which this thread's current stream may have added: on a device, gather() waits for
  /// that stream.
  void note_stream();

  /// Makes the member-th gradient zero in its place.
  void clear(std::size_t member);

  /// Does what is left of keep() and clear(), on this thread's current stream, after what other streams do to the
  /// gradients. Returns whether anything was left.
  bool gather();

  /// Makes the memory of `gradient`, of its place's dtype, its place; false if that is not possible. See
  /// BucketMemory::adopt().
  bool adopt(const at::Tensor& gradient, const at::Tensor& incoming);

  /// Starts the reduction. Gradients count `weight` times in the average; with 0 they may be NaN.
  void start(WireFormat& format, Communicator& communicator, double weight);
  bool is_started() const { return reduction_ != nullptr; }

  /// Reduction::advance().
  bool advance(Communicator& communicator);

  /// Adds the cost of the round's reduction to the statistics and to `trace`, which may be null. Returns its seconds. A
  /// device ends a reduction later than advance() returns: that of the round before is then added, if it has ended.
  double record(TraceSink* trace);

  /// The same for the reduction of the round before, if it has not been added.
  double record_former(TraceSink* trace);

  /// Ends the round.
  void release();

  /// Ends the last round, wherever it is: on a device, the current stream waits for a reduction under way.
  void abandon() noexcept;

  const BucketStatistics& statistics() const { return statistics_; }

 private:
  const std::vector<at::Tensor>& places();
  void wait_for_gradients() const;
  bool record(const Reduction& reduction, TraceSink* trace, double& seconds);

  BucketView view_;
  std::vector<at::Tensor> shapes_;  // of the gradients: sizes, strides and dtype, without memory
  std::vector<at::Tensor> places_;  // not the view's tensors: a write by a wire format is not a change by the user
  std::unique_ptr<BucketMemory> memory_;
  std::shared_ptr<const std::string> label_;
  std::unique_ptr<Reduction> reduction_;
  std::unique_ptr<Reduction> unrecorded_;  // of the round before
  bool is_recorded_ = false;
  BucketStatistics statistics_;

  // On a device: what gather() is to do.
  std::map<std::size_t, at::Tensor*> kept_;  // by member; null for one to clear
  std::vector<c10::Stream> streams_;         // on which autograd has computed the gradients
};

/// The buckets of a plan, reduced in its order: start() for each, then wait().
class GradientBuckets {
 public:
  /// `format` and `communicator` must outlive this; `trace` may be null.
  GradientBuckets(WireFormat& format, Communicator& communicator, TraceSink* trace);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;  // reductions refer to its memory
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Replaces the buckets by those of a plan whose members are indices into `parameters`. Large gradients (buckets of
  /// one gradient of at least `alone_bytes`) stay where autograd leaves them. Gradients in the former buckets keep
  /// their memory alive.
  void make(const std::vector<Bucket>& plan, const ModuleParameters& parameters, std::size_t alone_bytes,
            const std::string& owner);

  /// `owner` names the synchronizer of these buckets if a process has several: ranks that mix them up must not average
  /// one with another. The same on every rank; "" for the first.
  void set_owner(const std::string& owner);

  GradientBucket& operator[](std::size_t index) { return buckets_[index]; }

  /// Gradients that this thread's backward() creates between these two calls may be adopted.
  void begin_backward();
  void end_backward();

  /// Starts to reduce a bucket after gather(). This rank's gradients count `weight` times.
  void start(std::size_t index, double weight) { buckets_[index].start(format_, communicator_, weight); }

  /// Waits for all buckets, which must have been started; then their gradients are the average on every rank.
  void wait();

  /// Ends a round.
  void release();

  void add_to(SynchronizationStatistics& statistics);

 private:
  WireFormat& format_;
  Communicator& communicator_;
  TraceSink* trace_;
  std::unique_ptr<GradientMemory> memory_;
  std::vector<GradientBucket> buckets_;
  double seconds_reducing_ = 0;  // includes former plans
};

}  // namespace libtrain::detail
