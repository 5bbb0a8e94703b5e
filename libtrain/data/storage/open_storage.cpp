#include <libtrain/data/storage/open_storage.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/arrow_storage.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data {

std::shared_ptr<const Storage> open_storage(const std::string& location, const StorageOptions& options) {
  const auto parsed = detail::parse_location(location);
  if (parsed.kind == detail::StorageKind::local) return std::make_shared<const detail::LocalStorage>(parsed.path);
  return detail::open_arrow_storage(parsed, options);
}

std::unique_ptr<const File> open_file(const std::string& location, const StorageOptions& options) {
  auto folder = detail::parse_location(location);
  if (folder.kind == detail::StorageKind::local) return detail::open_local_file(folder.path);
  if (folder.path.empty()) {
    throw UsageError(text("'", folder.name, "' is a whole container or bucket. Give the location of a file in it."));
  }
  const auto slash = folder.path.rfind('/');
  const auto file = slash == std::string::npos ? folder.path : folder.path.substr(slash + 1);
  folder.path = slash == std::string::npos ? "" : folder.path.substr(0, slash);
  folder.name = folder.name.substr(0, folder.name.rfind('/'));
  return detail::open_arrow_storage(folder, options)->open(file);
}

}  // namespace libtrain::data
