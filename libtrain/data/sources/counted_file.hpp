#pragma once

#include <memory>
#include <string>

#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// The file at `path`, each read of which goes to count_bytes_read() of the thread that reads. Throws as Storage::open.
std::unique_ptr<const File> open_counted(const Storage& storage, const std::string& path);

}  // namespace libtrain::data::detail
