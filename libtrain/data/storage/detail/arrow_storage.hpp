#pragma once

#include <memory>

#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/storage.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data::detail {

/// The folder in an object store at `location`, whose kind is not local. Sends no request, except for the region of an
/// S3 bucket if neither AWS_REGION nor an endpoint is set.
///
/// Errors: EnvironmentError with the store's own words and nothing secret. Network errors, time-outs, and HTTP 408, 429
/// and 5xx are retried (StorageOptions::retry), with a warning at most every 30 s, so that a temporary outage ends
/// nothing; 401, 403 and 404 are not. An unknown host and missing credentials are final unless the store has answered
/// before.
///
/// Change: an open file remembers its entity tag (Azure, S3) or generation (GCS), or else its time of change, and its
/// size. A read fails if the file is missing or has become shorter. When StorageOptions::change_check is due, it then
/// compares the file with the store: after that, all bytes read since the file was opened are of one version. A file
/// that is replaced and closed again between two checks goes unnoticed, except on GCS, whose reads name the generation.
/// FileInfo::version consists of time of change and size, the only properties in a listing: on Azure that time has
/// whole seconds, so two changes within one second that keep the size have the same version.
///
/// Threads: requests are made on the reading thread, any number at a time and of at most 32 MiB each; Azure's and
/// Google's clients use no other threads. AWS's client has its own thread, and listing a bucket of S3 uses Arrow's I/O
/// pool (8 threads, or ARROW_IO_THREADS). A thread in a request does not react to a stop request: Azure's client waits
/// up to a minute for a silent server, and up to five for a connection.
///
/// Azure: listing a container without a hierarchical namespace takes one request per folder and per 5000 files; info()
/// needs permission to list as well. Folders of any store are prefixes: an empty folder does not exist.
///
/// Throws EnvironmentError as well if this libtrain was built without Arrow, UsageError for a local location.
std::shared_ptr<const Storage> open_arrow_storage(const Location& location, const StorageOptions& options);

class ArrowConnection;

/// The same by a connection that was made for `location`.
std::shared_ptr<const Storage> open_arrow_storage(std::shared_ptr<const ArrowConnection> connection,
                                                  const Location& location);

}  // namespace libtrain::data::detail
