#pragma once

#include <memory>

#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/storage.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data::detail {

/// Whether this libtrain was built with Apache Arrow, through which it reads object stores.
bool has_arrow_storage();

/// What lies in an object store at `location`, whose kind is not local. Nothing is asked of the store yet, but for the
/// region of an S3 bucket where neither AWS_REGION nor an endpoint is set.
///
/// Errors: EnvironmentError with the store's own words and nothing secret. Network trouble, time-outs, and HTTP 408,
/// 429 and 5xx are tried again (StorageOptions::retry), with a warning at most every 30 s, so that a store that goes
/// away and comes back ends nothing; 401, 403 and 404 are not. A host that is unknown, or nobody to sign a request as,
/// is final unless the store has answered before.
///
/// Change: an open file remembers its entity tag (Azure, S3) or generation (GCS), or else its time of change, and its
/// size. A read fails where the file is gone or has become shorter, and, where StorageOptions::change_check says so,
/// asks afterwards whether the file is still the same: then all that was read since it was opened is of one version. A
/// file that is replaced and closed again between two such checks goes unnoticed; on GCS, whose reads name the
/// generation, nothing does. FileInfo::version is made of time of change and size, all that a listing tells: on Azure
/// that time is in whole seconds, so two changes within one that keep the size have the same version.
///
/// Threads: requests are made on the thread that reads, any number of them at a time and of at most 32 MiB each;
/// Azure's and Google's clients then use no other. AWS's client has one thread of its own, and listing a bucket of S3
/// uses Arrow's pool for input and output (8 threads, or ARROW_IO_THREADS). A thread in a request does not hear a stop:
/// Azure's client gives a silent server a minute, and a connection up to five.
///
/// Azure: listing a container that is no hierarchical namespace takes one request a folder and 5000 files; info() needs
/// permission to list as well. Folders of any store are prefixes: an empty one does not exist.
///
/// Throws EnvironmentError as well where this libtrain was built without Arrow, UsageError for a local location.
std::shared_ptr<const Storage> open_arrow_storage(const Location& location, const StorageOptions& options);

}  // namespace libtrain::data::detail
