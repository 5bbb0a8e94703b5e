#pragma once

#include <optional>
#include <string>
#include <vector>

#include <libtrain/comm/collective_record.hpp>

namespace libtrain::detail {

/// The position of a rank in its sequence of collectives.
struct Position {
  /// The same text on all ranks that are at the same point: "in barrier (collective number 7)".
  std::string place = {};
  double seconds = 0;  ///< since when, as a duration
};

/// One rank's report of its collectives when a run fails. Its text is meant for people; `find_position` reads the first
/// line, which identifies the run, and the last line, which contains the rank's position.
struct CollectiveLog {
  std::string run = {};                        ///< one line; the same on all ranks of a run, and in no other run
  std::string who = {};                        ///< one line: rank, host, process, time
  std::string failure = {};                    ///< the error message
  std::vector<CollectiveRecord> records = {};  ///< oldest first
  WorkTimes::Clock::time_point now = {};       ///< time of the failure: the text shows times relative to it
};

/// Whether any of them is queued or running.
bool any_under_way(const std::vector<CollectiveRecord>& records);

/// The position at time `now`; `records` has the oldest first.
Position position_of(const std::vector<CollectiveRecord>& records, WorkTimes::Clock::time_point now);

/// One line per record: number, state, milliseconds from `now` to the call, the beginning and the end, and the
/// collective.
std::string to_text(const CollectiveLog& log);

/// Reads the position at the end of `log_text`; std::nullopt if it is not a log of this run.
std::optional<Position> find_position(const std::string& log_text, const std::string& run);

/// A line for each position, with the ranks that are there, such as "ranks 0 and 2: in barrier (collective number 7),
/// for 3.0 s". Element r is the position of rank r. Empty if no position is known.
std::string describe_places(const std::vector<std::optional<Position>>& ranks);

}  // namespace libtrain::detail
