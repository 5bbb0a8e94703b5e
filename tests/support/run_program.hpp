#pragma once

#include <exception>
#include <functional>
#include <iostream>
#include <string_view>

#include <libtrain/base/error.hpp>

namespace libtrain::test {

inline void print_error(std::string_view message) {
  std::cerr << message << '\n';
}

/// What main() of a program does around its work, to end with libtrain's exit codes: returns 0 or, where `work` throws,
/// the code of the error, whose message goes to `tell`. Throws nothing.
inline int run_program(const std::function<void()>& work, void (*tell)(std::string_view message) = print_error) {
  try {
    work();
    return static_cast<int>(ExitCode::success);
  } catch (const Error& error) {
    tell(error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    tell(error.what());
    return static_cast<int>(ExitCode::failure);
  }
}

}  // namespace libtrain::test
