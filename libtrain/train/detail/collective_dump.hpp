#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/train/detail/dump_requests.hpp>
#include <libtrain/train/failure_report.hpp>

namespace libtrain::detail {

/// The last collectives of each rank, written down when a run fails, to see which rank was where.
///
/// A rank that fails has the other ranks of its host write theirs, and writes its own into
/// DIR/collectives.rank<number>.txt. So does every rank that still lives: the others fail at the same deadline, or are
/// asked, in whatever code they are stuck. Each file names the run, so that those of an earlier one are not mistaken
/// for it, and is there whole or not at all.
///
/// Knows the collectives of one communicator: those split from it keep records of their own. Nothing here takes much
/// longer than a second or what it is told, not even on a disk that does not answer. Belongs to one thread.
class CollectiveDump {
 public:
  /// All ranks must call it, with one `run` (see agree_on_run_id), when they have called a collective.
  CollectiveDump(std::shared_ptr<Communicator> communicator, std::filesystem::path directory, std::string run);
  ~CollectiveDump();
  CollectiveDump(const CollectiveDump&) = delete;  // one file, one writer
  CollectiveDump& operator=(const CollectiveDump&) = delete;

  /// Writes where this rank has failed in its communication, or while collectives were under way. False where it was
  /// something else, or where the communicator keeps no records: then nothing is written.
  bool write_after(const Failure& failure) noexcept;

  /// One sentence for the report: where the files are, or why this rank's is missing. After write_after.
  std::string where_to_look() const;

  /// From the files of all ranks, one line for each place where ranks are (see describe_places); empty where none can
  /// be read. Waits for files that are missing, but no longer than `limit`.
  std::string where_ranks_are(std::chrono::milliseconds limit) const noexcept;

 private:
  struct State;
  static std::string write(const std::shared_ptr<State>& state, const std::optional<std::string>& failure);

  std::shared_ptr<State> state_;
  std::optional<DumpRequests> requests_;
  std::string error_;
};

}  // namespace libtrain::detail
