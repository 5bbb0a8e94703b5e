#include <libtrain/base/file_descriptor.hpp>

#include <cerrno>

namespace libtrain::detail {

std::size_t write_all(int descriptor, std::string_view bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto written = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  return done;
}

}  // namespace libtrain::detail
