#include <libtrain/data/storage/file.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

std::string read_all(const File& file, std::uint64_t limit_bytes) {
  const auto size = file.size();
  if (size > limit_bytes) {
    throw EnvironmentError(text("File '", file.name(), "', byte offset ", limit_bytes, ": expected at most ",
                                limit_bytes, " bytes in all, found ", size, "."));
  }
  std::string content(size, '\0');
  file.read_at(0, std::as_writable_bytes(std::span{content}));
  return content;
}

}  // namespace libtrain::data
