#include <libtrain/data/sources/source_checks.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

std::string name_in(const Storage& storage, const std::string& path) {
  const std::string& root = storage.name();
  return text(root, path.empty() || root.ends_with('/') ? "" : "/", path);
}

std::shared_ptr<const Storage> require_storage(std::shared_ptr<const Storage> storage) {
  if (!storage) throw UsageError("A source of images was made without a storage; pass one, such as open_storage().");
  return storage;
}

void require_images(std::uint64_t size, const std::string& name) {
  if (size == 0) throw EnvironmentError(text("Folder '", name, "': expected images, found none."));
}

void require_image(std::uint64_t index, std::uint64_t size, const std::string& name) {
  if (index >= size) {
    throw UsageError(text("Image ", index, " of the folder '", name, "' was asked for, which has ", size, " images."));
  }
}

}  // namespace libtrain::data::detail
