#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace libtrain::tools {

/// Has `app` read the arguments of the program `name`. Returns the help where that is asked for; the arguments are not
/// all read then. Throws UsageError, which points to the help, for what the app does not take.
std::optional<std::string> read_arguments(CLI::App& app, const std::string& name, int argc, const char* const* argv);

}  // namespace libtrain::tools
