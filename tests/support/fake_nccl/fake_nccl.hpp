#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>

namespace libtrain::test {

/// A libnccl for tests without GPUs: it implements the functions that libtrain calls, for ranks that are threads of one
/// process, with buffers in host memory and streams that are ignored. Link it instead of NCCL.
///
/// As in NCCL's non-blocking communicators, each group of calls and the connection run on a thread of the communicator,
/// and ncclCommGetAsyncError answers ncclInProgress until it has finished, and then joins it: without a lock, so that
/// two callers at once are a data race for ThreadSanitizer, and are counted.
///
/// The communicators that are made after `start` belong to the object that it returns, which is never destroyed:
/// threads that libtrain has detached may still call them.
class FakeNccl {
 public:
  /// A library that behaves well, for the communicators made from now on.
  static FakeNccl& start();

  /// Ends every block and returns when no thread is in the library.
  void finish();

  // What the library does; set it before the call that it concerns.

  /// How long a connection stays in progress after all ranks have come, or for ever.
  std::atomic<std::chrono::milliseconds> connecting = std::chrono::milliseconds(0);
  std::atomic<bool> never_connects = false;
  /// The same for each group of calls.
  std::atomic<std::chrono::milliseconds> launching = std::chrono::milliseconds(0);
  std::atomic<bool> never_launches = false;
  /// The answer of the next collective; of ncclGroupEnd; and the state of the group after that.
  std::atomic<ncclResult_t> call_result = ncclSuccess;
  std::atomic<ncclResult_t> group_result = ncclSuccess;
  std::atomic<ncclResult_t> group_state = ncclSuccess;
  /// ncclCommRegister and ncclMemAlloc fail.
  std::atomic<bool> refuses_memory = false;
  /// These calls block until `finish`.
  std::atomic<bool> abort_blocks = false;
  std::atomic<bool> destroy_blocks = false;
  std::atomic<bool> never_finalizes = false;

  // What it has seen.

  std::atomic<int> connects = 0;
  std::atomic<int> finalizes = 0;
  std::atomic<int> destroys = 0;
  std::atomic<int> aborts = 0;  ///< that have returned
  std::atomic<int> allocated = 0;
  std::atomic<int> registered = 0;
  /// Groups that have been launched, also late.
  std::atomic<int> launches = 0;
  /// Two threads inside a call with one communicator, of which one is ncclCommGetAsyncError.
  std::atomic<int> concurrent_polls = 0;
  /// Calls with a communicator that was destroyed or aborted, or not connected yet.
  std::atomic<int> invalid_calls = 0;

  // Of the implementation.
  std::atomic<bool> finished = false;
  std::atomic<int> threads = 0;  ///< in the library
};

}  // namespace libtrain::test
