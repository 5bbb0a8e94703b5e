#pragma once

#include <optional>
#include <string>
#include <vector>

#include <libtrain/comm/collective_record.hpp>

namespace libtrain::detail {

/// Where a rank is among its collectives.
struct Position {
  /// The same words on all ranks that are at the same point: "in barrier (collective number 7)".
  std::string place = {};
  double seconds = 0;  ///< for so long
};

/// What one rank tells of its collectives when a run fails. As text it is meant for people; of it, `find_position`
/// reads the first line, which is the run's, and the last one, which says where the rank is.
struct CollectiveLog {
  std::string run = {};                        ///< one line; the same on all ranks of a run, and in no other run
  std::string who = {};                        ///< one line: rank, host, process, time
  std::string failure = {};                    ///< what has failed
  std::vector<CollectiveRecord> records = {};  ///< oldest first
  WorkTimes::Clock::time_point now = {};       ///< the moment of the failure: times are told relative to it
};

/// Whether one of them is queued or runs.
bool any_under_way(const std::vector<CollectiveRecord>& records);

/// At the moment `now`, from records with the oldest first.
Position position_of(const std::vector<CollectiveRecord>& records, WorkTimes::Clock::time_point now);

/// One line a record: number, state, milliseconds from `now` to the call, the beginning and the end, and what it was.
std::string to_text(const CollectiveLog& log);

/// What `log_text` says at its end; nothing where it is no log of this run.
std::optional<Position> find_position(const std::string& log_text, const std::string& run);

/// A line for each place, with the ranks that are there, such as "ranks 0 and 2: in barrier (collective number 7), for
/// 3.0 s". Element r is where rank r is. Empty where that is known of no rank.
std::string describe_places(const std::vector<std::optional<Position>>& ranks);

}  // namespace libtrain::detail
