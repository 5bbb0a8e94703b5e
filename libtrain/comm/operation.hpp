#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/call.hpp>
#include <libtrain/comm/collective_record.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

class OperationQueue;

/// One collective over a HostTransport: what to do, how long it may take, and how it ended.
class Operation : public Pending {
 public:
  using Body = std::function<void(HostTransport&, const Patience&)>;

  Operation(Call call, Arrival arrival, Deadline deadline, Body body)
      : call(call), arrival(arrival), deadline(deadline), body(std::move(body)) {
    times_.called = Stopwatch::Clock::now();
  }

  /// Runs the operations before this one and this one itself on the calling thread where nobody else has begun, and
  /// sleeps otherwise.
  void wait() override;
  bool done() override;
  std::optional<WorkTimes> times() override;

  const Call call;
  Arrival arrival;  ///< the fingerprint comes with the number
  const Deadline deadline;
  std::uint64_t sequence = 0;
  std::shared_ptr<const std::string> label;  ///< what it is for; may be null
  Body body;                                 ///< holds the tensors; emptied when it has run
  std::shared_ptr<OperationQueue> queue;     ///< emptied when it has run

  /// Notes that it runs now.
  void begin();

  /// Ends it, once: with success where `outcome` is null.
  void finish(std::exception_ptr outcome);

  /// Equal on ranks that call the same, for the same purpose.
  std::uint64_t fingerprint() const;

  /// "all_reduce of 10 float32 (sum) for bucket 3".
  std::string what() const;

  /// The same with its number: "all_reduce of 10 float32 (sum) (collective number 7)".
  std::string name() const;

  CollectiveRecord record();

  /// Whether it has ended well and no caller has asked. Once no Work refers to it, this is a mistake.
  bool was_ignored();

 private:
  /// Sleeps until it has ended; false where it has not ended by then.
  bool sleep_until(const Deadline& latest);
  void wait_for_its_end(OperationQueue& mine);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool asked_ = false;  // wait() or done() was called
  WorkTimes times_;
  std::exception_ptr failure_;
};

}  // namespace libtrain::detail
