#include <libtrain/base/detail/standard_output.hpp>

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

}  // namespace libtrain::detail
