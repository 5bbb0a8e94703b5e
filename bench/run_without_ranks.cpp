#include <bench/run_without_ranks.hpp>

#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include <libtrain/base/detail/heap.hpp>
#include <libtrain/base/detail/standard_output.hpp>
#include <libtrain/base/error.hpp>

namespace libtrain::bench {

namespace {

int fail(const std::exception& error, ExitCode code) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(code);
}

}  // namespace

int run_without_ranks(CLI::App& app, int argc, const char* const* argv, const std::function<void()>& work) {
  detail::keep_heap();  // as run() does
  try {
    try {
      app.parse(argc, argv);
      work();
    } catch (const CLI::ParseError& error) {  // --help as well
      if (app.exit(error) != 0) return static_cast<int>(ExitCode::usage);
    }
    detail::require_printed();
    return static_cast<int>(ExitCode::success);
  } catch (const Error& error) {
    return fail(error, error.exit_code());
  } catch (const std::exception& error) {
    return fail(error, ExitCode::failure);
  }
}

}  // namespace libtrain::bench
