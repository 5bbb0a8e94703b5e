#include <libtrain/data/storage/cached_file.hpp>

#include <cerrno>
#include <cstring>

#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

void CachedFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  require_range(*this, offset, to.size());
  const auto got = entry_.read(offset, to);
  if (got == to.size()) return;
  const int code = errno;
  throw StorageUnavailable(text("File '", name_, "', byte offset ", offset, ": its copy in the cache cannot be read: ",
                                got ? "it was cut short" : std::strerror(code), ". Is the disk damaged?"));
}

}  // namespace libtrain::data::detail
