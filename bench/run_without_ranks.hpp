#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace libtrain::bench {

/// What main() does of a bench that has no ranks, as libtrain::run() does of one that has: `app` reads the arguments,
/// then `work` uses them. Returns the exit code; an error is one line on standard error. Help, and complaints about the
/// arguments, are the app's own. Throws nothing.
int run_without_ranks(CLI::App& app, int argc, const char* const* argv, const std::function<void()>& work);

}  // namespace libtrain::bench
