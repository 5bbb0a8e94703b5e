#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// Returns `storage`; throws UsageError for nullptr.
std::shared_ptr<const Storage> require_storage(std::shared_ptr<const Storage> storage);

/// Throws EnvironmentError, which names the folder `name`, if `size` is 0.
void require_images(std::uint64_t size, const std::string& name);

/// Throws UsageError, which names the folder `name`, unless `index` < `size`.
void require_image(std::uint64_t index, std::uint64_t size, const std::string& name);

/// The file at `path`. Each read is reported to count_bytes_read() of the reading thread. Throws as Storage::open.
std::unique_ptr<const File> open_counted(const Storage& storage, const std::string& path);

}  // namespace libtrain::data::detail
