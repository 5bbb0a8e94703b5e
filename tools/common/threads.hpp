#pragma once

namespace libtrain::tools {

inline constexpr int kMaxThreads = 1024;

/// As many threads as there are cores to run them: those that this process may use, and that its container pays for.
int default_threads();

}  // namespace libtrain::tools
