#include <libtrain/base/detail/standard_output.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

void require_printed() {
  // The stream and the file below it each have their own error state.
  const bool flushed = std::cout.flush() && std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return;
  throw EnvironmentError(
      "Cannot write to standard output. Redirect it to a file system with free space, and run again.");
}

void reserve_standard_descriptors() {
  for (;;) {
    // The lowest that is free. To read: what is printed there fails, as where it is closed.
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (descriptor > STDERR_FILENO) ::close(descriptor);
    if (descriptor < 0 || descriptor > STDERR_FILENO) return;
    ::fcntl(descriptor, F_SETFD, 0);
  }
}

}  // namespace libtrain::detail
