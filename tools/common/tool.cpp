#include <tools/common/tool.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <exception>
#include <iostream>
#include <system_error>

#include <CLI/CLI.hpp>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/detail/option_words.hpp>
#include <libtrain/base/detail/printable.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/detail/standard_output.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::tools {

namespace {

int fail(const std::string& name, const std::exception& error, ExitCode code) {
  std::cerr << name << ": " << detail::printable(detail::redact(error.what())) << '\n';
  return static_cast<int>(code);
}

}  // namespace

int run_tool(const std::string& name, const std::function<ExitCode()>& work) {
  // With the signal ignored, a write beyond the file size limit fails and is reported instead of killing the program.
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  detail::reserve_standard_descriptors();
  try {
    const ExitCode code = work();
    detail::require_printed();
    return static_cast<int>(code);
  } catch (const Error& error) {
    return fail(name, error, error.exit_code());
  } catch (const std::system_error& error) {  // from threads and file systems
    return fail(name, error, ExitCode::environment);
  } catch (const std::exception& error) {
    return fail(name, error, ExitCode::failure);
  }
}

std::optional<std::string> read_arguments(CLI::App& app, const std::string& name, int argc, const char* const* argv) {
  const auto takes_value = [&](const std::string& option) {
    auto apps = app.get_subcommands({});
    apps.push_back(&app);
    return std::ranges::any_of(apps, [&](const CLI::App* each) {
      const auto* const found = each->get_option_no_throw(option);
      return found != nullptr && found->get_items_expected_min() > 0;
    });
  };
  detail::require_option_values({argv, static_cast<std::size_t>(argc)}, takes_value);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw UsageError(text(error.what(), ". Run ", name, " --help."));
  }
  return std::nullopt;
}

int default_threads() {
  auto cores = static_cast<double>(detail::usable_cores().size());
  if (const auto quota = detail::cpu_quota()) cores = std::min(cores, *quota);
  return std::clamp(static_cast<int>(cores), 1, kMaxThreads);
}

}  // namespace libtrain::tools
