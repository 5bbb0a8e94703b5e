#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include <libtrain/comm/host_transport.hpp>

#include "wait_policy.hpp"

namespace libtrain::test {

/// Connects the ranks of a test, threads or forked processes, through a table in memory that they share. It can gather
/// up to 4 KiB per rank, and nothing else.
class SharedTable {
 public:
  explicit SharedTable(int world_size);
  ~SharedTable();
  SharedTable(const SharedTable&) = delete;  // processes share it by fork
  SharedTable& operator=(const SharedTable&) = delete;

  std::unique_ptr<HostTransport> rank(int rank);

  /// Returns when all ranks have called it; throws after 20 s.
  void wait();

 private:
  friend class TableTransport;
  struct Content;
  Content* content_;
  int world_size_;
};

/// An all-reduce in place, with its arrival.
void sum_up(HostTransport& transport, float* data, std::size_t count);

using TransportBody = std::function<void(HostTransport& transport)>;

/// Runs `body` on threads of this process that share memory.
void on_threads(int world_size, const TransportBody& body);

/// Runs `body` in forked processes that share memory, and waits for all. Element r of the result is how rank r ended: 0
/// if its expectations were met, 1 if not, otherwise its exit code, or 128 plus the signal that ended it.
std::vector<int> on_processes(int world_size, const TransportBody& body);

/// Element r of the result is the process of rank r, which runs `body` with its rank as a child.
std::vector<pid_t> fork_ranks(int world_size, const std::function<void(int rank)>& body);
std::vector<int> wait_for(const std::vector<pid_t>& processes);

}  // namespace libtrain::test
