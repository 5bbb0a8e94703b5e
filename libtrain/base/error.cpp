#include <libtrain/base/detail/printable.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/error.hpp>

namespace libtrain {

Error::Error(ExitCode exit_code, const std::string& message, ErrorScope scope)
    : std::runtime_error(detail::printable(detail::redact(message))), exit_code_(exit_code), scope_(scope) {}

}  // namespace libtrain
