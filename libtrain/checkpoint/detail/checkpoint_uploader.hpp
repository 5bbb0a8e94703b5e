#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <libtrain/base/detail/object_store.hpp>
#include <libtrain/checkpoint/background_writer.hpp>
#include <libtrain/checkpoint/checkpoint_retention.hpp>
#include <libtrain/checkpoint/detail/stored_checkpoints.hpp>

namespace libtrain::detail {

/// Copies a run's complete checkpoints from its root to an object store, on a thread of its own, so that a slow store
/// delays neither the training nor the next local checkpoint.
///
/// States of a checkpoint in the store: absent (there is no manifest.json in its folder, whatever else there is), sent
/// (all its files are there, with the lengths of the manifest), complete (so is manifest.json). Invariants:
/// - manifest.json is the last object that is put, and the first that is removed. It ends with its own checksum: one
///   that is empty or cut off is damage, not a checkpoint.
/// - Files are compared with the manifest's checksums while they are sent, and again when they are fetched.
/// - Objects of a complete checkpoint are never replaced. One whose files turn out to be damaged is removed before its
///   step is uploaded again.
/// - Folders without manifest.json, which failed uploads have left, are removed before the next upload.
/// - Retention counts the run's own checkpoints in the store and those in the root together, so that a new, empty root
///   removes nothing. Those that it keeps and the store lacks are uploaded, newest first.
///
/// Two runs at one location: the stores have no lock that ends with its holder. A run puts the object kStoreWriterName,
/// which names it, before its first upload, and reads it before it puts a manifest and before it removes anything: if
/// the object names another run, a later one has taken over, and the upload fails. The moment between this read and the
/// put remains; what it lets pass is a complete checkpoint of the earlier run.
class CheckpointUploader {
 public:
  /// `run_ids` and `retention` are those of the CheckpointWriter of `root`. The store must outlive this object, and is
  /// used by nothing else while an upload is running. Sends no request.
  CheckpointUploader(ObjectStore& store, std::filesystem::path root, std::vector<std::string> run_ids,
                     CheckpointRetention retention);

  CheckpointUploader(const CheckpointUploader&) = delete;  // owns the thread
  CheckpointUploader& operator=(const CheckpointUploader&) = delete;

  /// Waits for the running upload. Logs a failure that no call has reported.
  ~CheckpointUploader();

  /// Uploads the complete checkpoint of this step and others that the store lacks, in the background. If an upload is
  /// running, the next start() or wait() does. May be called on the thread that commits, while no other thread uses
  /// this object.
  void start(std::int64_t step);

  /// Waits for the running upload.
  void finish() { thread_.wait(); }

  /// Reports a failure of an upload that has ended: as a warning, or by throwing it if that happened more than
  /// `failures_allowed` times in a row.
  void report(int failures_allowed);

  /// Waits for the running upload, and uploads on this thread what the store still lacks. Throws EnvironmentError if
  /// that fails.
  void wait();

 private:
  void synchronize();
  std::vector<std::int64_t> to_remove(const std::vector<CheckpointManifest>& manifests) const;
  bool is_own(const CheckpointManifest& manifest) const;
  void claim(const StoredFolders& folders);
  void require_claim();
  void read_new_manifests(const StoredFolders& folders);
  void remove_leftovers(const StoredFolders& folders);
  void upload_missing(const std::vector<std::int64_t>& steps, const StoredFolders& folders);
  void upload(std::int64_t step, const StoredFolders& folders);
  void make_room_for(std::int64_t step, const StoredFolders& folders);
  void remove_checkpoint(std::int64_t step, const StoredFolders& folders);
  void warn_once(const std::string& about, const std::string& message);

  ObjectStore& store_;
  const std::filesystem::path root_;
  const std::vector<std::string> run_ids_;
  const CheckpointRetention retention_;
  std::string mark_ = {};                                 // the content of our kStoreWriterName; empty before the claim
  std::map<std::int64_t, StoredManifest> complete_ = {};  // manifests that were read or put; they do not change
  std::set<std::int64_t> refused_ = {};                   // steps of which the store has another checkpoint
  std::set<std::string> warned_about_ = {};
  // Also written by the thread that calls start(), while an upload is running.
  std::atomic<std::int64_t> newest_ = -1;
  std::atomic<bool> is_behind_ = false;
  // Of uploads in the background; read while none is running.
  std::exception_ptr error_ = {};
  int failures_ = 0;                                 // one after the other
  std::map<std::int64_t, std::string> unread_ = {};  // steps before the newest in the root, and why they were not read
  BackgroundWriter thread_;
};

}  // namespace libtrain::detail
