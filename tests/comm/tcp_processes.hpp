#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include <tests/comm/tcp_ranks.hpp>
#include <tests/support/fork_child.hpp>

namespace libtrain::test {

/// The result of `body` on one rank, or the message of what it throws.
inline std::string run_rank(LoopbackRendezvous& loopback, int rank, int world_size,
                            const std::function<std::string(HostTransport&)>& body) {
  try {
    return body(*detail::TcpTransport::connect(*loopback.of(rank), rank, world_size, {}, wait_policy()));
  } catch (const std::exception& error) {
    return text("thrown: ", error.what());
  }
}

/// Ranks that are processes, so that they can be killed and stopped. Element r of the result is what `body` returned on
/// rank r, once all ranks but `lost` have exited; empty for `lost`, which is then killed.
inline std::vector<std::string> on_tcp_processes(int world_size, int lost,
                                                 const std::function<std::string(HostTransport&)>& body) {
  LoopbackRendezvous loopback{world_size};
  struct Child {
    pid_t pid;
    int output;
  };
  std::vector<Child> children;
  for (int rank = 0; rank < world_size; ++rank) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw EnvironmentError("pipe failed.");
    const pid_t pid = fork_child();
    if (pid == 0) {
      alarm(60);
      const auto result = run_rank(loopback, rank, world_size, body);
      static_cast<void>(!write(ends[1], result.data(), result.size()));
      _exit(0);
    }
    close(ends[1]);
    children.push_back({.pid = pid, .output = ends[0]});
  }
  std::vector<std::string> results;
  for (int rank = 0; rank < world_size; ++rank) {
    std::array<char, 1024> buffer{};
    const auto got =
        rank == lost ? 0 : read(children[static_cast<std::size_t>(rank)].output, buffer.data(), buffer.size());
    results.emplace_back(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  for (const auto& child : children) {
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    close(child.output);
  }
  return results;
}

}  // namespace libtrain::test
