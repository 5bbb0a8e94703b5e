#include <libtrain/data/storage/cached_file.hpp>

#include <cerrno>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

void CachedFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  require_range(*this, offset, to.size());
  const auto got = entry_.read(offset, to);
  if (got == to.size()) return;
  throw EnvironmentError(text("File '", name_, "', byte offset ", offset, ": its copy in the cache cannot be read: ",
                              got ? "it was cut short" : std::strerror(errno), ". Is the disk damaged?"));
}

}  // namespace libtrain::data::detail
