#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// The view of a bucket for a wire format. Names, shapes and dtypes are the same on all ranks.
struct BucketView {
  std::size_t index = 0;  ///< in the order of reduction: the bucket's position in what plan() got
  /// All gradients end to end: one-dimensional, dense, from Communicator::allocate, of one floating dtype. Padding
  /// between them is zero and must stay zero: nothing clears it between rounds.
  at::Tensor flat;
  std::vector<std::string> names;     ///< of the parameters
  std::vector<at::Tensor> gradients;  ///< their places in `flat`, each of its parameter's shape, dense
};

/// The pending reduction of one bucket. The communicator outlives it.
class Reduction {
 public:
  virtual ~Reduction() = default;

  /// wait() calls it for all buckets in their order, repeatedly until it returns true: then every rank's bucket has the
  /// same average. If a parameter's gradient on a rank has an element that is NaN or infinite, so has its average on
  /// all ranks, as NonFinite and LossScaler expect. Autograd may record what it does: use an at::NoGradGuard. Waits for
  /// the collectives started before and may start others; it must return false equally often on all ranks. Throws as
  /// collectives do.
  virtual bool advance() = 0;

  /// Called instead of advance() if the synchronizer is destroyed before wait(), on a device: makes the current stream
  /// wait for the collectives that were started, so that the memory is not written afterwards.
  virtual void abandon() {}

  /// When the first collective was called and began, and when the last one ended: times_from(). Asked after advance()
  /// has returned true; on a device until it has a value, or the next round has ended. std::nullopt if the backend does
  /// not measure it.
  virtual std::optional<WorkTimes> times() const { return {}; }
};

namespace detail {
class WireFormatUse;
}

/// How gradients are sent between ranks, and how a bucket is computed from them. Derive from it for other formats. One
/// object serves one synchronizer at a time, on every rank with the same options: the constructor of a second one
/// throws UsageError.
class WireFormat {
 public:
  virtual ~WireFormat() = default;
  WireFormat() = default;
  WireFormat(const WireFormat&) = delete;  // it keeps state for the buckets of one synchronizer
  WireFormat& operator=(const WireFormat&) = delete;

  /// "float16", "powersgd of rank 2": for logs and errors.
  virtual std::string name() const = 0;

  /// All settings that must be equal on all ranks, including options; compared when a synchronizer is created.
  virtual std::string signature() const { return name(); }

  /// Whether finite gradients may become infinite in this format, so that NonFinite must check the result, too.
  virtual bool may_overflow() const = 0;

  /// Whether a round that is recorded into a graph may be replayed as later rounds: true if the format keeps no state
  /// on the host that changes from round to round, and never waits for the device.
  virtual bool is_recordable() const { return false; }

  /// Whether later rounds depend on earlier ones, by what the format keeps. No checkpoint has it: a run that is resumed
  /// begins without it, and a Trainer says so.
  virtual bool keeps_state() const { return false; }

  /// Called before the first round and whenever the buckets change, on all ranks. State that is kept between rounds
  /// must be kept by the parameters' names. It must not call collectives, only Communicator::allocate. Of the integers,
  /// messages may be int32, int64 and uint8.
  virtual void plan(const std::vector<BucketView>& buckets, Communicator& communicator) = 0;

  /// Starts to average `bucket`, one of those planned, over all ranks. Called in the order of the buckets, by the
  /// thread that runs backward() or wait(), where autograd may record: it may start collectives and must not wait for
  /// them. The tensors may be others than in plan(), since a bucket's memory may change between rounds; a Reduction
  /// keeps those that it needs, as `bucket` does not outlive the call.
  virtual std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) = 0;

 private:
  friend class detail::WireFormatUse;
  std::atomic<bool> is_in_use_ = false;
};

/// For WireFormat::start: averages a dense tensor of one dimension over all ranks, in place and unchanged, as a format
/// does with buckets that it does not compress.
std::unique_ptr<Reduction> average_in_place(const at::Tensor& flat, Communicator& communicator);

/// For Reduction::times: from the call of `first` to the end of `last`; std::nullopt if one of them has no times.
std::optional<WorkTimes> times_from(const Work& first, const Work& last);

/// For WireFormat::start: throws UsageError unless `bucket` is one of the first `planned`, those that the format got in
/// plan().
void require_planned(const BucketView& bucket, std::size_t planned);

namespace detail {

/// A synchronizer's use of a format, which may be null. Throws UsageError if another synchronizer uses it.
class WireFormatUse {
 public:
  explicit WireFormatUse(WireFormat* format);
  ~WireFormatUse();
  WireFormatUse(const WireFormatUse&) = delete;
  WireFormatUse& operator=(const WireFormatUse&) = delete;

 private:
  WireFormat* const format_;
};

}  // namespace detail

}  // namespace libtrain
