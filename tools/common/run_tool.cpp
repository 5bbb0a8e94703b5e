#include <tools/common/run_tool.hpp>

#include <csignal>
#include <exception>
#include <iostream>
#include <system_error>

#include <libtrain/base/detail/printable.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/detail/standard_output.hpp>

namespace libtrain::tools {

namespace {

int fail(const std::string& name, const std::exception& error, ExitCode code) {
  std::cerr << name << ": " << detail::printable(detail::redact(error.what())) << '\n';
  return static_cast<int>(code);
}

}  // namespace

int run_tool(const std::string& name, const std::function<ExitCode()>& work) {
  // A limit on the sizes of files then makes writing fail, which is reported, rather than to end the program.
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  try {
    const ExitCode code = work();
    detail::require_printed();
    return static_cast<int>(code);
  } catch (const Error& error) {
    return fail(name, error, error.exit_code());
  } catch (const std::system_error& error) {  // of threads and file systems
    return fail(name, error, ExitCode::environment);
  } catch (const std::exception& error) {
    return fail(name, error, ExitCode::failure);
  }
}

}  // namespace libtrain::tools
