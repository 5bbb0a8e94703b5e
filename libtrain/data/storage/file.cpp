#include <libtrain/data/storage/file.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

const File& detail::require_file(const File* file, std::string_view what) {
  if (file == nullptr) throw UsageError(text("A ", what, " was opened without a file. Pass one."));
  return *file;
}

void detail::require_range(const File& file, std::uint64_t offset, std::size_t count) {
  const auto size = file.size();
  const auto left = offset > size ? std::uint64_t{0} : size - offset;
  if (offset <= size && count <= left) return;
  throw EnvironmentError(text("File '", file.name(), "', byte offset ", offset, ": expected ", count,
                              " more bytes, found ", left, " (it ends after ", size, ")."));
}

std::string detail::read_range(const File& file, std::uint64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  file.read_at(offset, std::as_writable_bytes(std::span{bytes}));
  return bytes;
}

std::string read_all(const File& file, std::uint64_t limit_bytes) {
  const auto size = file.size();
  if (size > limit_bytes) {
    throw EnvironmentError(text("File '", file.name(), "', byte offset ", limit_bytes, ": expected at most ",
                                limit_bytes, " bytes in total, found ", size, "."));
  }
  return detail::read_range(file, 0, size);
}

}  // namespace libtrain::data
