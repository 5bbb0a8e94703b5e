#pragma once

#include <memory>
#include <string>

#include <libtrain/data/storage/storage.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data {

/// The folder at `location`: a local path, or a URI of Azure Blob Storage, S3 or GCS as parse_location() understands
/// it. Throws UsageError for a location that it does not understand, EnvironmentError where a local folder is missing
/// or credentials are unusable. An object store is asked only when something in it is opened or listed; see
/// arrow_storage.hpp for what is tried again, what is noticed of changes, and which threads are used.
std::shared_ptr<const Storage> open_storage(const std::string& location, const StorageOptions& options = {});

/// The single file at `location`. Throws as open_storage and Storage::open; UsageError where the location is a
/// container or bucket as a whole.
std::unique_ptr<const File> open_file(const std::string& location, const StorageOptions& options = {});

}  // namespace libtrain::data
