#include <libtrain/base/detail/standard_output.hpp>

#include <cstdio>
#include <iostream>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

void require_printed() {
  // The stream keeps an error of its own, and so does the file below it.
  const bool flushed = std::cout.flush() && std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return;
  throw EnvironmentError("Standard output cannot be written; give it a place with room and run again.");
}

}  // namespace libtrain::detail
