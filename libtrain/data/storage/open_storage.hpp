#pragma once

#include <memory>
#include <string>

#include <libtrain/data/storage/storage.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data {

/// The folder at `location`: a local path, or a URI of Azure Blob Storage, S3 or GCS in a form that parse_location()
/// accepts. Throws UsageError for any other location, EnvironmentError if a local folder is missing or credentials are
/// unusable. Requests to an object store are sent only to open or list files; see arrow_storage.hpp for retries,
/// detection of changes, and threads.
std::shared_ptr<const Storage> open_storage(const std::string& location, const StorageOptions& options = {});

/// The single file at `location`. Throws as open_storage and Storage::open; UsageError for a whole container or bucket.
std::unique_ptr<const File> open_file(const std::string& location, const StorageOptions& options = {});

/// Whether this libtrain was built with Apache Arrow, which reads object stores and Parquet files.
bool has_arrow();

}  // namespace libtrain::data
