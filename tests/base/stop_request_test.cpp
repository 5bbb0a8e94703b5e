#include <libtrain/base/stop_request.hpp>

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tests/support/fork_child.hpp>

namespace libtrain {
namespace {

using namespace std::chrono_literals;

// In processes of their own, because handlers belong to a process. The status of waitpid().
int status_of(const std::function<int()>& body) {
  const auto child = test::fork_child();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

void expect_true(const std::function<bool()>& body) {
  const int status = status_of([&] { return body() ? 0 : 1; });
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(StopRequest, IsNotMadeByItself) {
  const StopRequest stop;
  EXPECT_FALSE(stop.is_requested());
  EXPECT_EQ(stop.reason(), "");
}

TEST(StopRequest, IsMadeByEitherSignal) {
  for (const auto& [number, name] :
       std::vector<std::pair<int, std::string>>{{SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}}) {
    expect_true([number = number, name = name] {
      const StopRequest stop;
      kill(getpid(), number);
      return stop.is_requested() && stop.reason() == name;
    });
  }
}

TEST(StopRequest, IsMadeByADeadline) {
  const StopRequest passed{Deadline::after(0ms), "--max-minutes 0"};
  EXPECT_TRUE(passed.is_requested());
  EXPECT_EQ(passed.reason(), "--max-minutes 0");
  const StopRequest ahead{Deadline::after(1h)};
  EXPECT_FALSE(ahead.is_requested());
  EXPECT_EQ(ahead.reason(), "");
}

TEST(StopRequest, ASignalIsTheReasonBeforeTheDeadline) {
  expect_true([] {
    const StopRequest stop{Deadline::after(0ms)};
    raise(SIGUSR1);
    return stop.reason() == "SIGUSR1";
  });
}

TEST(StopRequest, ASecondSignalOfEitherKindEndsTheProcess) {
  for (const int first : {SIGTERM, SIGUSR1}) {
    for (const int second : {SIGTERM, SIGUSR1}) {
      const int status = status_of([&] {
        const StopRequest stop;
        raise(first);
        raise(second);
        return 0;
      });
      EXPECT_TRUE(WIFSIGNALED(status));
      EXPECT_EQ(WTERMSIG(status), second);
    }
  }
}

TEST(StopRequest, ASecondSignalEndsAProcessWhoseMainThreadComputes) {
  const int status = status_of([] {
    const StopRequest stop;
    std::thread other([] {
      raise(SIGTERM);
      raise(SIGTERM);
    });
    while (true) asm volatile("");
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

// As in a container. Root needs no user namespace for it.
TEST(StopRequest, ASecondSignalEndsProcess1) {
  constexpr int kNoNamespaces = 1;
  const int status = status_of([] {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return kNoNamespaces;
    const auto first = fork();
    if (first == 0) {
      test::end_with_parent();
      const StopRequest stop;
      raise(SIGUSR1);
      raise(SIGTERM);
      _exit(0);
    }
    int code = 0;
    return waitpid(first, &code, 0) == first && WIFEXITED(code) ? WEXITSTATUS(code) : 0;
  });
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNamespaces) GTEST_SKIP() << "this machine has no PID namespaces for its users";
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

TEST(StopRequest, LeavesSigintAlone) {
  const int status = status_of([] {
    signal(SIGINT, SIG_DFL);  // shells start what runs in the background with SIGINT ignored
    const StopRequest stop;
    raise(SIGINT);
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(StopRequest, AllThreadsSeeIt) {
  expect_true([] {
    const StopRequest first;
    bool is_seen = false;
    std::thread([&] {
      const StopRequest second;
      raise(SIGUSR1);
      is_seen = second.is_requested();
    }).join();
    return is_seen && first.is_requested();
  });
}

// Not by interrupting one: ThreadSanitizer holds signals back while a thread is in a call.
TEST(StopRequest, RestartsInterruptedCalls) {
  const StopRequest stop;
  for (const int number : {SIGTERM, SIGUSR1}) {
    struct sigaction action{};
    ASSERT_EQ(sigaction(number, nullptr, &action), 0);
    EXPECT_NE(action.sa_flags & SA_RESTART, 0) << number;
  }
}

volatile sig_atomic_t former_calls = 0;

void former_handler(int) {
  former_calls = former_calls + 1;
}

TEST(StopRequest, RestoresTheFormerHandlersAtItsEnd) {
  expect_true([] {
    signal(SIGUSR1, former_handler);
    std::optional<StopRequest> first{std::in_place};
    {
      const StopRequest second;
    }
    raise(SIGUSR1);
    if (!first->is_requested() || former_calls != 0) return false;
    first.reset();
    raise(SIGUSR1);
    const StopRequest later;
    return former_calls == 1 && !later.is_requested();
  });
}

TEST(StopRequest, LeavesHandlersThatReplacedItsOwn) {
  expect_true([] {
    {
      const StopRequest stop;
      signal(SIGUSR1, former_handler);
    }
    raise(SIGUSR1);
    return former_calls == 1;
  });
}

}  // namespace
}  // namespace libtrain
