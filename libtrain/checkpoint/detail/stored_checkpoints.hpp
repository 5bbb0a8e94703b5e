#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <libtrain/base/detail/object_store.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_manifest.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>

namespace libtrain::detail {

/// The object that names the run that writes checkpoints to a location.
inline constexpr const char* kStoreWriterName = "writer.json";

/// What is at a location of an object store: that of step 1234 is step-00001234/manifest.json and the files that it
/// names, as in a local folder. CheckpointUploader has the protocol.
struct StoredFolders {
  std::map<std::int64_t, std::map<std::string, std::uint64_t>> steps = {};  ///< lengths of the files in each folder
  bool has_writer = false;                                                  ///< there is a kStoreWriterName

  /// An empty manifest.json counts as none: Azure's client makes an empty object before it fills it.
  bool has_manifest(std::int64_t step) const;
};

StoredFolders list_stored_folders(ObjectStore& store);

struct StoredManifest {
  std::string bytes = {};
  CheckpointManifest manifest = {};
};

/// The manifest of a checkpoint in `folders`. Throws CheckpointDamagedError if it is missing, damaged, or of another
/// step, or if the lengths of the files are not those that it names; CheckpointVersionError; and EnvironmentError.
StoredManifest read_stored_manifest(ObjectStore& store, const StoredFolders& folders, std::int64_t step);

/// The manifests of all checkpoints that are neither damaged nor of another version, oldest first. Throws
/// EnvironmentError.
std::vector<CheckpointManifest> list_stored_manifests(ObjectStore& store);

/// Reads all files of a checkpoint. Throws CheckpointDamagedError if one has changed, and EnvironmentError.
void verify_stored_checkpoint(ObjectStore& store, const CheckpointManifest& manifest);

/// The name of a file of a checkpoint in the store; `name` may be its manifest.
std::string stored_name(std::int64_t step, const std::string& name);

/// Looks in `root` and in the store for the checkpoint to continue from. If the newest undamaged one of the store is
/// newer than that of `root`, it is copied to `root`, verified, by the CheckpointWriter that `open_writer` returns.
/// Throws as find_newest_checkpoint() and CheckpointWriter, and EnvironmentError if the store cannot be read: an older
/// checkpoint is then not good enough.
NewestCheckpoint fetch_newest_checkpoint(ObjectStore& store, const std::filesystem::path& root,
                                         const std::function<CheckpointWriter&()>& open_writer);

/// Copies the checkpoint of `step` from the store in the same way, whatever `root` has. Returns false if the store has
/// none. Throws CheckpointDamagedError if it is damaged, and EnvironmentError.
bool fetch_checkpoint(ObjectStore& store, std::int64_t step, CheckpointWriter& writer);

}  // namespace libtrain::detail
