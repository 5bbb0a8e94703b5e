#pragma once

#include <string>

namespace libtrain::detail {

/// A device communicator as its watchdog sees it. Any thread may call it.
class WatchedComm {
 public:
  virtual ~WatchedComm() = default;

  /// Called before anything else by a thread that is going to look after it: makes its device that thread's own.
  virtual void enter_thread() noexcept {}

  /// What the communication library has found broken by itself; empty while all is well.
  virtual std::string asynchronous_error() = 0;

  /// Ends what runs on the device without asking the peers. Later calls change nothing.
  virtual void abort() noexcept = 0;

  /// The orderly end, together with the peers, when nothing runs any more; aborts where they do not come in time.
  virtual void close() noexcept = 0;
};

}  // namespace libtrain::detail
