#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/checkpoint/checkpoint_manifest.hpp>
#include <libtrain/checkpoint/checkpoint_retention.hpp>

namespace libtrain {

/// Writes a run's checkpoints into one folder, the root, so that each is complete or absent. The object belongs to one
/// rank; all ranks write files with CheckpointFileWriter, and the caller carries names and entries between them:
///
///   rank 0        begun = writer.begin(step)                       then all ranks get `begun`
///   each rank     CheckpointFileWriter{root, begun, "..."} ... finish()       then rank 0 gets all entries
///   rank 0        writer.commit(manifest), or writer.abandon() if a rank failed
///
/// The commit protocol. Files in the root:
///
///   lock                            locked while a CheckpointWriter exists; names its run
///   step-00001234/                  a checkpoint: manifest.json and the files that it names
///   step-00001234.<random>.partial  one that is being written, or was when its run was killed
///   step-00001234.<random>.removed  one that is being removed
///   step-00001234.<random>.damaged  one that was in the way of a new one of its step; never removed by libtrain
///   best.json                       the step of the best checkpoint, if one was marked
///
/// States of a checkpoint: absent, begun (begin() made its .partial folder), written (all ranks have synced their files
/// in it), described (manifest.json is in it and synced, and so is the folder), complete (the folder has its name),
/// removed (it has a .removed name, or none). Invariants:
/// - A folder gets the name of a checkpoint only by the rename from described to complete, and loses it only by one
///   rename: whatever call a process is killed in, and whatever call fails, a folder of this name has all its files.
/// - What the name promises is on the disk before the name: files, then manifest, then folder, are synced first. After
///   the rename the root is synced, and only then are older checkpoints removed: a power failure leaves the older ones
///   or the new one.
/// - Bytes that change later are noticed: the manifest has the length and the CRC-32C of each file, and its own.
/// - Until it is complete, a checkpoint has a random name: no rank of an earlier attempt, which may still be writing,
///   adds to a later one.
/// - Only a CheckpointWriter renames and removes, and it removes only .partial and .removed folders and checkpoints of
///   `run_ids`. It holds the lock. A file system without locks causes a warning; then .partial and .removed folders
///   that this object did not make remain, because another run may be using them.
/// - Symbolic links in the root are not followed.
///
/// Errors of the machine (a full disk, a read-only root, a failing disk, a name that is taken) are EnvironmentError;
/// the checkpoint is then abandoned, and complete ones are as before. Used by one thread at a time.
class CheckpointWriter {
 public:
  /// Creates the root if it does not exist, takes its lock, and removes what killed runs left. `run_ids` are the runs
  /// that led to this one, oldest first, and this one's own id last: those of the manifest that it continues from, and
  /// its own. Throws EnvironmentError, which names the other run if one holds the lock; in that case nothing changes.
  CheckpointWriter(const std::filesystem::path& root, std::vector<std::string> run_ids,
                   CheckpointRetention retention = {});

  CheckpointWriter(const CheckpointWriter&) = delete;  // owns the lock
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Abandons a checkpoint that was begun, and releases the lock.
  ~CheckpointWriter();

  /// Makes the folder for the files of a new checkpoint, and returns its name for CheckpointFileWriter. A damaged
  /// checkpoint of this step is renamed, with a warning. Throws EnvironmentError if there is an undamaged one, or
  /// something that is not a folder; UsageError if another checkpoint has been begun, or `step` is negative.
  std::string begin(std::int64_t step);

  /// Makes the begun checkpoint complete and removes those that the retention does not keep; if a removal fails, it
  /// logs a warning. The manifest has all ranks' files; what CheckpointManifest says is filled in, is. Returns the
  /// checkpoint's folder. Throws UsageError if nothing was begun, for a manifest of another step, one that cannot be
  /// written, or one whose files are not those in the folder; EnvironmentError as above. If the last call, which syncs
  /// the root, fails, the checkpoint is complete but may not survive a power failure, and older ones are not removed.
  std::filesystem::path commit(CheckpointManifest manifest);

  /// Makes the begun checkpoint complete as a copy of one that was written elsewhere, with these bytes of its
  /// manifest.json, and removes none. Returns and throws as commit().
  std::filesystem::path commit_copy(const std::string& manifest);

  /// Removes the begun checkpoint, if there is one. What cannot be removed now is removed later.
  void abandon() noexcept;

  /// Keeps the complete checkpoint of this step until another one is marked. Throws UsageError if there is none, and
  /// EnvironmentError.
  void mark_best(std::int64_t step);

  const std::filesystem::path& root() const;

 private:
  class State;

  std::unique_ptr<State> state_;
};

/// Renames `root`, if it contains checkpoints, to root.N, so that a run can start anew and lose nothing; N is the
/// number after the highest one there, or 1. Returns the new name. Throws EnvironmentError if a run is writing there,
/// and if the folder cannot be renamed.
std::optional<std::filesystem::path> set_aside_checkpoints(const std::filesystem::path& root);

/// Of the folders that set_aside_checkpoints() has made, the one with the highest number that contains something called
/// `name`: its path there. Without a name, that of the folder. Empty if there is none.
std::filesystem::path latest_set_aside(const std::filesystem::path& root, const std::filesystem::path& name = {});

}  // namespace libtrain
