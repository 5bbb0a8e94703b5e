#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/checkpoint/checkpoint_manifest.hpp>

namespace libtrain {

/// The folder of a checkpoint: "step-" and the step in at least 8 digits.
std::string checkpoint_folder_name(std::int64_t step);

/// The step in such a name; std::nullopt for every other name.
std::optional<std::int64_t> parse_checkpoint_folder_name(std::string_view name);

/// A complete checkpoint, for reading. Reading needs no lock and changes nothing. Any thread may call.
class CheckpointFolder {
 public:
  /// Reads the manifest, and compares the lengths of all files with it; `verify()` compares their bytes. The folder may
  /// have any name. Throws CheckpointDamagedError, which says what is missing or damaged, CheckpointVersionError, and
  /// EnvironmentError if the folder cannot be read.
  explicit CheckpointFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return path_; }
  const CheckpointManifest& manifest() const { return manifest_; }

  /// Reads every file, at the speed of the disk, and compares its checksum. Throws CheckpointDamagedError, which names
  /// the file and, if the file's entry lists tensors, the damaged tensor, and EnvironmentError if a file cannot be
  /// read.
  void verify() const;

  /// The same for one file. Throws also EnvironmentError if the checkpoint has none of this name.
  void verify(std::string_view name) const;

  /// The entry of a file; nullptr if the checkpoint has none of this name.
  const CheckpointFile* find(std::string_view name) const;

  /// The path of a file, for readers of its format. Throws EnvironmentError if the checkpoint has none of this name.
  std::filesystem::path file(std::string_view name) const;

  /// All bytes of a file; throws CheckpointDamagedError if they do not have the length and the checksum of its entry,
  /// or if there are more than `limit_bytes`.
  std::string read(std::string_view name, std::uint64_t limit_bytes = std::uint64_t{64} << 20) const;

 private:
  const CheckpointFile& require(std::string_view name) const;

  std::filesystem::path path_;
  CheckpointManifest manifest_;
};

/// One folder of a run's checkpoints.
struct CheckpointStatus {
  std::int64_t step = 0;
  std::filesystem::path folder = {};
  std::string problem = {};  ///< what is missing or damaged; empty if manifest and lengths are right

  bool is_complete() const { return problem.empty(); }
};

/// The checkpoints in the folder `root`, oldest first; none if it does not exist. Unfinished ones and those that are
/// being removed have other names and are not listed. Reads manifests and lengths, not the files. Throws
/// EnvironmentError if `root` cannot be listed.
std::vector<CheckpointStatus> list_checkpoints(const std::filesystem::path& root);

/// The manifests of those that are complete.
std::vector<CheckpointManifest> list_manifests(const std::filesystem::path& root);

struct NewestCheckpoint {
  std::optional<CheckpointFolder> checkpoint = {};  ///< the newest that is complete and undamaged; verified
  std::vector<std::string> passed_over = {};        ///< what is wrong with those after it, newest first
};

/// Looks for the checkpoint to continue from. A run that writes to `root` at the same time may remove old checkpoints
/// meanwhile. Throws EnvironmentError if `root` cannot be listed, and CheckpointVersionError if a checkpoint that would
/// be passed over was written by a newer libtrain: continuing from an older one would repeat its steps.
NewestCheckpoint find_newest_checkpoint(const std::filesystem::path& root);

/// The checkpoint that CheckpointWriter::mark_best() marked; std::nullopt if none is marked. It is not verified. Throws
/// EnvironmentError if it is damaged or missing.
std::optional<CheckpointFolder> find_best_checkpoint(const std::filesystem::path& root);

}  // namespace libtrain
