#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/collective_record.hpp>
#include <libtrain/comm/detail/device/device_launcher.hpp>
#include <libtrain/comm/detail/device/device_watchdog.hpp>
#include <libtrain/comm/detail/device/stream_mark.hpp>

namespace libtrain::detail {

/// The time of a position in the communication stream, with which times of the device become those of the host's clock.
struct ClockReference {
  StreamMark mark;
  WorkTimes::Clock::time_point time;
};

/// A collective in the communication stream of a DeviceCommunicator.
///
///     called --> in the stream --> running --> done, or failed
///
/// Invariants:
/// - its tensors are held until a stream that may reuse their memory waits for its end, or its end is known;
/// - a record needs no call of the device, which may not answer: states and times are those that the last call of
///   has_ended() has seen;
/// - no event of a collective that is recorded into a graph is ever queried.
class CollectiveOperation : public DeviceOperation {
 public:
  /// What the operations of a communicator share.
  struct Shared {
    std::shared_ptr<DeviceLauncher> launcher = {};
    std::shared_ptr<const FirstFailure> failure = {};
    c10::Stream stream;  // of the collectives
  };

  /// Called in `calling_stream`, which is recording a graph or not.
  CollectiveOperation(Identity identity, const Deadline& deadline, std::shared_ptr<const Shared> shared,
                      std::vector<at::Tensor> tensors, const c10::Stream& calling_stream, bool is_recorded);

  /// Tensors that it still holds are protected from reuse by the allocator.
  ~CollectiveOperation() override;

  /// Before and after it is put into the communication stream. A recorded one has no reference.
  void begin(std::shared_ptr<const ClockReference> reference);
  void end();

  /// Makes the current stream wait; the host does not wait. The tensors are released: their memory is reused in the
  /// order of the calling stream, or, if another stream waits, after a check by the allocator. Throws the first failure
  /// of the communicator, and UsageError if the collective is waited for on the other side of a recording.
  void wait() override;

  /// Never true for a recorded one, which runs each time the graph is replayed.
  bool done() override;
  std::optional<WorkTimes> times() override;

  bool has_ended() override;
  void release() noexcept override;
  void note_abort() noexcept override;

  /// Whether a former call of has_ended() has returned true.
  bool is_known_to_have_ended() const { return state_ == State::done || state_ == State::failed; }

  CollectiveRecord record() const;

 private:
  using State = CollectiveRecord::State;

  void note_begin();
  void note_end();
  std::vector<at::Tensor> take_tensors() noexcept;
  void protect(std::vector<at::Tensor> tensors) const;

  const std::shared_ptr<const Shared> shared_;
  const c10::Stream calling_stream_;
  const bool is_recorded_;
  std::shared_ptr<const ClockReference> reference_;
  std::optional<StreamMark> began_;
  std::optional<StreamMark>
      ended_;  // set by the calling thread before others use it, or by the watchdog after an abort
  std::atomic<State> state_ = State::queued;
  mutable std::mutex mutex_;
  std::vector<at::Tensor> tensors_;
  WorkTimes times_;
};

}  // namespace libtrain::detail
