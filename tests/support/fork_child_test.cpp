#include <tests/support/fork_child.hpp>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>

#include <gtest/gtest.h>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::test {
namespace {

TEST(ForkChild, EndsWhenItsParentIsKilled) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t parent = fork_child();
  if (parent == 0) {
    const pid_t child = fork_child();
    if (child != 0) _exit(write(ends[1], &child, sizeof(child)) == sizeof(child) ? pause() : 1);
    pause();
    _exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), sizeof(child));
  const detail::FileDescriptor handle{static_cast<int>(syscall(SYS_pidfd_open, child, 0))};
  ASSERT_TRUE(handle.is_open());
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  if (poll(&ended, 1, 20'000) != 1) {
    ADD_FAILURE() << "it outlives its parent";
    kill(child, SIGKILL);
  }
  for (const int end : ends) close(end);
}

}  // namespace
}  // namespace libtrain::test
