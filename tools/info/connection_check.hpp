#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <libtrain/launch/launch.hpp>

namespace libtrain::tools {

/// The connection of two hosts, or of the ranks of one host, as measured.
struct Link {
  std::string from;
  std::string to;         ///< equal to `from` for the ranks of one host
  int ranks = 2;          ///< number of ranks that took part
  double latency_s = 0;   ///< median of 8 bytes one way; within a host, of an all-reduce of 8 bytes
  double there_gb_s = 0;  ///< 16 MiB in 10^9 bytes per second, the best of 5; within a host, of an all-reduce
  double back_gb_s = 0;   ///< 0 within a host
};

struct ConnectionCheck {
  std::string description;  ///< "4 ranks on 2 hosts: shared memory inside, tcp between"
  double seconds = 0;       ///< until all ranks were connected
  std::vector<Link> links;  ///< on rank 0; empty elsewhere
};

/// Connects the ranks of a launched job as in a program, and measures each host and each pair of hosts (one rank of
/// each) while no other pair uses the same hosts. All ranks must call it. Throws as connect_transport, and
/// EnvironmentError if the launch environment and the peers disagree about this rank.
ConnectionCheck check_connections(const Launch& launch, std::chrono::milliseconds timeout);

}  // namespace libtrain::tools
