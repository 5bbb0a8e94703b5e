#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace libtrain::detail {

/// How a rank that fails has the other ranks of its host say where they are, also those that are stuck in code of the
/// user's: each has a name among Linux's abstract sockets, and a thread that sleeps until a rank writes to it. A
/// request says nothing but that it is one, and those of other users are not heard. Where the system gives no socket or
/// no thread, requests are not heard.
class DumpRequests {
 public:
  /// At each request `answer` is called on a thread of this object's; it must not throw. `run` is the same
  /// on all ranks of a run, and in no other run.
  DumpRequests(std::string run, int rank, std::function<void()> answer);

  /// Waits for an `answer` that is being given.
  ~DumpRequests();

  DumpRequests(const DumpRequests&) = delete;  // one owner of the socket
  DumpRequests& operator=(const DumpRequests&) = delete;

  /// Asks the ranks of the run that are on this host, without waiting for anything.
  void ask_others(int world_size) const;

 private:
  std::string name_of(int rank) const;

  std::string run_;
  int rank_;
  int socket_ = -1;
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

}  // namespace libtrain::detail
