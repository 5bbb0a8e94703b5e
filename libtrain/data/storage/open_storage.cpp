#include <libtrain/data/storage/open_storage.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/arrow_storage.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data {

std::shared_ptr<const Storage> open_storage(const std::string& location, const StorageOptions& options) {
  const auto parsed = parse_location(location);
  if (parsed.kind == StorageKind::local) return std::make_shared<const LocalStorage>(parsed.path);
  return open_arrow_storage(parsed, options);
}

std::unique_ptr<const File> open_file(const std::string& location, const StorageOptions& options) {
  auto folder = parse_location(location);
  if (folder.kind == StorageKind::local) return detail::open_local_file(folder.path);
  if (folder.path.empty()) {
    throw UsageError(text("'", folder.name, "' is a whole container or bucket: expected the location of a file."));
  }
  const auto slash = folder.path.rfind('/');
  const auto file = slash == std::string::npos ? folder.path : folder.path.substr(slash + 1);
  folder.path = slash == std::string::npos ? "" : folder.path.substr(0, slash);
  folder.name = folder.name.substr(0, folder.name.rfind('/'));
  return open_arrow_storage(folder, options)->open(file);
}

}  // namespace libtrain::data
