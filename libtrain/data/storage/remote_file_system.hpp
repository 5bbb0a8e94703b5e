#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/storage/location.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace arrow::fs {
class FileSystem;
}

namespace libtrain::data::detail {

/// Arrow's client of an object store.
struct RemoteFileSystem {
  std::shared_ptr<arrow::fs::FileSystem> file_system = {};
  std::vector<std::string> secrets = {};  ///< what no message may hold
  std::string signed_with = {};           ///< for messages: what its requests are signed with
  std::string endpoint = {};              ///< a URL of the service, and of the account where there is one
};

/// Makes the client for `location` with what `options` and the environment say of endpoints and credentials.
/// AWS's library is started with the first location in S3 and shut down when the program exits.
/// Throws EnvironmentError where they do not fit together, UsageError for a local location.
RemoteFileSystem connect_file_system(const Location& location, const StorageOptions& options);

}  // namespace libtrain::data::detail
