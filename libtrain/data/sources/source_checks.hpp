#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// How messages name what lies at `path` below the storage's root, "" for the root itself.
std::string name_in(const Storage& storage, const std::string& path);

/// `storage` itself; throws UsageError without one.
std::shared_ptr<const Storage> require_storage(std::shared_ptr<const Storage> storage);

/// Throws EnvironmentError, which names the folder `name`, for a source of no images.
void require_images(std::uint64_t size, const std::string& name);

/// Throws UsageError, which names the folder `name`, unless `index` < `size`.
void require_image(std::uint64_t index, std::uint64_t size, const std::string& name);

/// The file at `path`, each read of which goes to count_bytes_read() of the thread that reads. Throws as Storage::open.
std::unique_ptr<const File> open_counted(const Storage& storage, const std::string& path);

}  // namespace libtrain::data::detail
