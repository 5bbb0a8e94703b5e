#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace libtrain::data {

/// A file in memory with a path, for functions that take no File.
class MemoryPath {
 public:
  explicit MemoryPath(std::string_view bytes) : descriptor_(memfd_create("libtrain", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create failed");
    while (!bytes.empty()) {
      const auto written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written <= 0) throw std::runtime_error("cannot write to a file in memory");
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  MemoryPath(const MemoryPath&) = delete;  // owns the descriptor
  MemoryPath& operator=(const MemoryPath&) = delete;
  ~MemoryPath() { ::close(descriptor_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace libtrain::data
