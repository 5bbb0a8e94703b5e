#include <tools/inspect/buffered_file.hpp>

#include <cstring>
#include <string_view>
#include <utility>

namespace libtrain::inspect {

BufferedFile::BufferedFile(std::unique_ptr<const data::File> file) : file_(std::move(file)), window_(*file_) {}

void BufferedFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  if (to.empty()) return;
  data::detail::require_range(*file_, offset, to.size());
  const std::lock_guard lock(mutex_);
  const std::string_view bytes = window_.at(offset, to.size());
  std::memcpy(to.data(), bytes.data(), bytes.size());
}

}  // namespace libtrain::inspect
