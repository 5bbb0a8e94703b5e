#include <libtrain/data/storage/storage.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

void add_number(ContentHasher& hasher, std::uint64_t number) {
  hasher.update(std::as_bytes(std::span{&number, 1}));
}

// With its length, so that no two lists of texts run together to the same bytes.
void add_text(ContentHasher& hasher, std::string_view bytes) {
  add_number(hasher, bytes.size());
  hasher.update(bytes);
}

}  // namespace

CacheKey cache_key(const std::string& storage, const FileInfo& file) {
  ContentHasher hasher;
  add_text(hasher, storage);
  add_text(hasher, file.path);
  add_text(hasher, file.version);
  add_number(hasher, file.size);
  return {.hash = hasher.digest(), .size = file.size};
}

namespace detail {

bool leads_below(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find('/', begin), path.size());
    const auto part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

void require_path_below(const std::string& root, std::string_view path) {
  if (leads_below(path)) return;
  std::string printable{path};
  std::replace(printable.begin(), printable.end(), '\0', '?');
  throw EnvironmentError(text("Path '", printable, "' below '", root,
                              "': expected parts joined by '/', none of them empty, '.' or '..'."));
}

std::unique_ptr<const File> open_unchanged(const Storage& from, const std::string& path, const CacheKey& key) {
  // Opened first and asked about second: where it changes in between, reading what was opened is an error.
  auto file = from.open(path);
  const auto now = from.info(path);
  if (file->size() == key.size && cache_key(from.identity(), now) == key) return file;
  throw EnvironmentError(text("File '", describe(from, path), "' was changed since it was listed: it had ", key.size,
                              " bytes then and has ", now.size, " now, or is of another version (", now.version,
                              "). Leave the data alone while a run reads it, and start the run again."));
}

std::string describe(const Storage& storage, const std::string& path) {
  const auto& root = storage.name();
  return root.empty() || root.ends_with('/') ? root + path : root + '/' + path;
}

}  // namespace detail

}  // namespace libtrain::data
