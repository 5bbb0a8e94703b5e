#pragma once

#include <functional>
#include <string>

#include <libtrain/base/error.hpp>

namespace libtrain::tools {

/// What main() of the program `name` does around its work: returns the exit code that `work` returns or, where it
/// throws, that of the error, which becomes one line on standard error. Throws nothing. Standard output that cannot be
/// written is an error, too: what is missing there must not pass for the whole.
int run_tool(const std::string& name, const std::function<ExitCode()>& work);

}  // namespace libtrain::tools
