#include <libtrain/comm/detail/shared_memory/peer_processes.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <libtrain/base/text.hpp>

#include <tests/support/fork_child.hpp>

namespace libtrain::detail {
namespace {

// A child that waits for its end.
pid_t start_child() {
  const auto child = test::fork_child();
  if (child == 0) {
    pause();
    _exit(0);
  }
  return child;
}

void expect_end_is_seen(pid_t child, const auto& has_exited) {
  EXPECT_FALSE(has_exited());
  ASSERT_EQ(kill(child, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_exited()) << "before its parent has waited for it";
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(has_exited());
}

TEST(PeerProcesses, TheEndOfOneIsSeen) {
  const auto child = start_child();
  ASSERT_GT(child, 0);
  const PeerProcesses processes{{getpid(), child}};
  expect_end_is_seen(child, [&] { return processes.has_exited(1); });
  EXPECT_FALSE(processes.has_exited(0));
}

TEST(PeerProcesses, TheEndOfOneIsSeenWithoutPidfds) {
  const auto child = start_child();
  ASSERT_GT(child, 0);
  const FileDescriptor status{open(text("/proc/", child, "/stat").c_str(), O_RDONLY | O_CLOEXEC)};
  ASSERT_TRUE(status.is_open());
  expect_end_is_seen(child, [&] { return has_ended(status); });
}

}  // namespace
}  // namespace libtrain::detail
