#include <tools/common/command_line.hpp>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::tools {

std::optional<std::string> read_arguments(CLI::App& app, const std::string& name, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw UsageError(text(error.what(), ". Run ", name, " --help."));
  }
  return std::nullopt;
}

}  // namespace libtrain::tools
