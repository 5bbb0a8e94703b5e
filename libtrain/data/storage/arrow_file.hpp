#pragma once

#include <memory>
#include <string>

#include <libtrain/data/storage/arrow_connection.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// Opens the object that Arrow calls `path` (container/parts/of/name) and messages call `name`. See arrow_storage.hpp
/// for errors and for what an open file notices of changes.
std::unique_ptr<const File> open_arrow_file(std::shared_ptr<const ArrowConnection> connection, std::string path,
                                            std::string name);

}  // namespace libtrain::data::detail
