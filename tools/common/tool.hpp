#pragma once

#include <functional>
#include <optional>
#include <string>

#include <libtrain/base/error.hpp>

namespace CLI {
class App;
}

namespace libtrain::tools {

/// Runs `work` for main() of the program `name`. Returns the exit code that `work` returns or, if it throws, that of
/// the error, which is printed on standard error in one line. Throws nothing. A failure to write standard output is an
/// error as well, so that incomplete output is not taken for complete.
int run_tool(const std::string& name, const std::function<ExitCode()>& work);

/// Has `app` parse the arguments of the program `name`. Returns the help text if the arguments ask for it; then not all
/// of them have been parsed. Throws UsageError, which refers to --help, for arguments that the app does not accept.
std::optional<std::string> read_arguments(CLI::App& app, const std::string& name, int argc, const char* const* argv);

inline constexpr int kMaxThreads = 1024;

/// The number of cores that this process may use, within the CPU quota of its container; at least 1.
int default_threads();

}  // namespace libtrain::tools
