#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/call.hpp>
#include <libtrain/comm/detail/device/device_watchdog.hpp>
#include <libtrain/comm/detail/device/stream_mark.hpp>

namespace libtrain::detail {

/// Device memory that a communication library has allocated and registered for its collectives. The destructor frees
/// it, on any thread, also after the launcher has been closed.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;  // one owner
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  virtual void* data() const = 0;
};

/// A communication library for one device per rank, as DeviceCommunicator uses it. A launcher puts collectives into a
/// stream; what surrounds that is in DeviceCommunicator: order of streams, lifetime of tensors, averages of 16-bit
/// types, NaN in minima and maxima, deadlines, records. NCCL implements it, and a fake library in tests.
///
/// One thread at a time calls `launch`; any thread may call all other functions at any time.
class DeviceLauncher : public WatchedComm {
 public:
  /// "nccl".
  virtual std::string_view name() const = 0;

  virtual at::Device device() const = 0;

  /// Puts the collective into `stream` and returns when it is there. Throws CommunicationError at the deadline, and if
  /// the library fails; the collective may still reach the stream later, until `abort` has returned.
  ///
  /// `call` has the number of elements as in Call: of one part in all_gather and reduce_scatter, of all parts in
  /// all_to_all. It is not 0. `output` is null on ranks that receive nothing; both are the tensor in a broadcast.
  /// The operation is not an average of 16-bit elements, and a minimum or maximum may lose a NaN. In-place calls pass
  /// the same memory, as Communicator says.
  virtual void launch(const Call& call, const void* input, void* output, const c10::Stream& stream,
                      const Deadline& deadline) = 0;

  /// Memory in which collectives are fastest; null if the library has none, or refuses.
  virtual std::unique_ptr<DeviceMemory> allocate(std::size_t /*bytes*/) { return nullptr; }

  /// Whether a launch is in progress, in which the library may read where its memory is.
  virtual bool is_launching() const { return false; }

  /// Whether a stream can record a graph that contains collectives.
  virtual bool can_record() const { return false; }

  /// Whether `stream` is recording a graph.
  virtual bool is_recording(const c10::Stream& /*stream*/) const { return false; }

  /// Whether the stream has passed `mark`. It must not disturb a graph that another thread or this one records.
  virtual bool has_passed(const StreamMark& mark) const { return mark.is_passed(); }

  /// The time between two marks that the streams have passed; with the same care.
  virtual double milliseconds_between(const StreamMark& begin, const StreamMark& end) const {
    return begin.milliseconds_until(end);
  }
};

/// Makes the launcher of this rank for the ranks of a communicator for host memory, which all call it. Throws
/// CommunicationError on all of them if they cannot be connected within the timeout of each step.
using ConnectLauncher =
    std::function<std::shared_ptr<DeviceLauncher>(Communicator& control, const CallOptions& set_up)>;

}  // namespace libtrain::detail
