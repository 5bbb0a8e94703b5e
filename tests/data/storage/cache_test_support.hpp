#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tests/support/fork_child.hpp>

namespace libtrain::test {

/// The paths of what is in a folder, not of what is in folders below; none where there is no such folder.
inline std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) files.push_back(entry.path().string());
  return files;
}

/// One process tells another that it has come to some point.
class Signal {
 public:
  Signal() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  Signal(const Signal&) = delete;  // one pipe
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    close(ends_[0]);
    close(ends_[1]);
  }

  void give() const {
    const char byte = 'x';
    if (write(ends_[1], &byte, 1) != 1) throw std::runtime_error("write failed");
  }

  /// Ends with one give() of any process. Throws where none comes in 30 s.
  void wait() const {
    constexpr int longest_wait_ms = 30'000;
    pollfd request{.fd = ends_[0], .events = POLLIN, .revents = 0};
    char byte = 0;
    if (poll(&request, 1, longest_wait_ms) != 1 || read(ends_[0], &byte, 1) != 1) {
      throw std::runtime_error("a process of the test did not come to the point that another waits for");
    }
  }

 private:
  std::array<int, 2> ends_{};
};

/// A forked process that runs `body` and then ends with exit code 0, or 1 where an expectation failed in it.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    process_ = fork_child();
    if (process_ > 0) return;
    constexpr unsigned longest_life_s = 60;
    alarm(longest_life_s);
    try {
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  Child(const Child&) = delete;  // one process
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ > 0) kill();
  }

  pid_t id() const { return process_; }

  /// Ends it with SIGKILL.
  void kill() {
    ::kill(process_, SIGKILL);
    wait();
  }

  /// Its exit code, or 128 and the number of the signal that ended it.
  int wait() {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t process_ = -1;
};

}  // namespace libtrain::test
