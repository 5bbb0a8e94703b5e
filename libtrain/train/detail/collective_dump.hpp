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

/// Writes the last collectives of each rank when a run fails, to show in which collective each rank was.
///
/// A rank that fails writes its log to DIR/collectives.rank<number>.txt and requests the same from the other ranks of
/// its host. In this way every running rank writes one: the others fail at the same deadline, or answer the request
/// even if they are blocked in other code. Each file contains the run id, so that files of an earlier run are ignored,
/// and is complete or absent.
///
/// Covers the collectives of one communicator; communicators split from it keep their own records. No call takes much
/// longer than a second or the given limit, even if the disk does not answer. One thread at a time may use it.
class CollectiveDump {
 public:
  /// All ranks must call it, with the same `run` (see agree_on_run_id), after their first collective.
  CollectiveDump(std::shared_ptr<Communicator> communicator, std::filesystem::path directory, std::string run);
  ~CollectiveDump();
  CollectiveDump(const CollectiveDump&) = delete;  // one file, one writer
  CollectiveDump& operator=(const CollectiveDump&) = delete;

  /// Writes the log if the failure is a communication error or collectives were under way. Otherwise, or if the
  /// communicator keeps no records, writes nothing and returns false.
  bool write_after(const Failure& failure) noexcept;

  /// One sentence for the report: the path of the files, or why this rank's file is missing. Call it after write_after.
  std::string where_to_look() const;

  /// From the files of all ranks, one line for each position of ranks (see describe_places); empty if none can be read.
  /// Waits up to `limit` for missing files.
  std::string where_ranks_are(std::chrono::milliseconds limit) const noexcept;

 private:
  struct State;
  static std::string write(const std::shared_ptr<State>& state, const std::optional<std::string>& failure);

  std::shared_ptr<State> state_;
  std::optional<DumpRequests> requests_;
  std::string error_;
};

}  // namespace libtrain::detail
