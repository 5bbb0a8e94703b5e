#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

namespace libtrain::test {

/// Ends this process when the thread that started it ends, also where ctest kills a test program at its time limit.
inline void end_with_parent() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/// As fork(), but throws where that fails. The child ends with the thread that forked it.
inline pid_t fork_child() {
  std::fflush(nullptr);  // what is still to be written must not be written twice
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    end_with_parent();
    if (getppid() != parent) _exit(1);  // it had ended already
  }
  return child;
}

}  // namespace libtrain::test
