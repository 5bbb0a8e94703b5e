#pragma once

#include <exception>
#include <functional>
#include <iostream>
#include <stdexcept>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>

/// What main() does of a program that has no ranks, as libtrain::run() does of one that has: `app` reads the arguments,
/// then `work` uses them. Returns the exit code; an error is one line on standard error, which begins with `name`.
inline int run_without_ranks(CLI::App& app, int argc, const char* const* argv, const char* name,
                             const std::function<void()>& work) {
  using libtrain::ExitCode;
  const auto fail = [name](const std::exception& error, ExitCode code) {
    std::cerr << name << ": " << error.what() << '\n';
    return static_cast<int>(code);
  };
  try {
    app.parse(argc, argv);
    work();
    return static_cast<int>(ExitCode::success);
  } catch (const CLI::ParseError& error) {
    return static_cast<int>(app.exit(error) == 0 ? ExitCode::success : ExitCode::usage);
  } catch (const libtrain::Error& error) {
    return fail(error, error.exit_code());
  } catch (const std::invalid_argument& error) {  // such as an unknown model
    return fail(error, ExitCode::usage);
  } catch (const std::exception& error) {
    return fail(error, ExitCode::failure);
  }
}
