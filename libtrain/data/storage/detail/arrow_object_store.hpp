#pragma once

#include <memory>

#include <libtrain/base/detail/object_store.hpp>
#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data::detail {

/// Read and write access to the folder in an object store at `location`, whose kind is not local. Requests, retries,
/// errors and messages are those of open_arrow_storage(). An object is sent in parts of 10 MiB, of which at most six
/// are in memory; a failed one is sent again from its beginning.
///
/// Throws as open_arrow_storage().
std::unique_ptr<libtrain::detail::ObjectStore> open_object_store(const Location& location,
                                                                 const StorageOptions& options);

}  // namespace libtrain::data::detail
