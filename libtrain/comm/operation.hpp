#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// One queued collective: what to do, how long it may take, and how it ended.
struct Operation {
  std::string description;  ///< equal on all ranks when they call the same collective: "all_reduce of 10 float32 (sum)"
  std::uint64_t sequence = 0;
  Deadline deadline = Deadline::never();
  std::function<void(HostTransport&, const Patience&)> body;  ///< holds the tensors; emptied when it has run
  std::shared_ptr<std::atomic<int>> waiters;                  ///< threads waiting for anything in the same queue

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr failure;

  void finish(std::exception_ptr outcome);
  bool is_done();
  void wait();
};

}  // namespace libtrain::detail
