#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace libtrain::detail {

/// Lets a failed rank request the collective logs of the other ranks of its host, including ranks that are blocked in
/// the user's code: each rank has an abstract socket, and a thread that sleeps until a rank sends a request to it. A
/// request has no content, and requests of other users are ignored. If the system provides no socket or no thread, all
/// requests are ignored.
class DumpRequests {
 public:
  /// At each request `answer` is called on this object's thread; it must not throw. `run` is the same on all ranks of a
  /// run, and unique to the run.
  DumpRequests(std::string run, int rank, std::function<void()> answer);

  /// Waits for a running `answer`.
  ~DumpRequests();

  DumpRequests(const DumpRequests&) = delete;  // one owner of the socket
  DumpRequests& operator=(const DumpRequests&) = delete;

  /// Sends a request to the other ranks of the run on this host. Does not wait.
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
