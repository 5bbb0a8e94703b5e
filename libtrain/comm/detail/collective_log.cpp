#include <libtrain/comm/detail/collective_log.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iomanip>
#include <sstream>
#include <string_view>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

using Clock = WorkTimes::Clock;
using State = CollectiveRecord::State;

constexpr std::string_view kRun = "run ";
constexpr std::string_view kHere = "\nThis rank is ";
constexpr std::string_view kFor = ", for ";
constexpr std::size_t kMaxPlaces = 10;

struct Group {
  std::string place = {};
  std::vector<int> ranks = {};
  double seconds = 0;
};

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

bool has_come(Clock::time_point time) {
  return time != Clock::time_point{};
}

std::string name_of(const CollectiveRecord& record) {
  return text(record.what, " (collective number ", record.sequence, ")");
}

std::string milliseconds(Clock::time_point time, Clock::time_point now) {
  return has_come(time) ? decimal(1000 * seconds_between(now, time), 1) : "-";
}

template <typename Number, typename Word>
void write_row(std::ostream& out, const Number& number, const Word& state, const std::string& called,
               const std::string& began, const std::string& ended, const std::string& what) {
  out << std::setw(8) << number << "  " << std::left << std::setw(8) << state << std::right << std::setw(12) << called
      << std::setw(12) << began << std::setw(12) << ended << "  " << what << '\n';
}

}  // namespace

bool any_under_way(const std::vector<CollectiveRecord>& records) {
  return std::ranges::any_of(records, [](const CollectiveRecord& record) {
    return record.state == State::queued || record.state == State::running;
  });
}

Position position_of(const std::vector<CollectiveRecord>& records, Clock::time_point now) {
  if (records.empty()) return {.place = "in front of its first collective"};
  // They run in the order of the calls, and what fails first makes all later ones fail.
  const auto unfinished = std::ranges::find_if(records, [](const auto& record) { return record.state != State::done; });
  if (unfinished == records.end()) {
    const auto& last = records.back();
    return {text("outside of collectives, after ", name_of(last)), seconds_between(last.times.ended, now)};
  }
  const auto& times = unfinished->times;
  const auto since = has_come(times.began) ? times.began : times.called;
  return {text("in ", name_of(*unfinished)), seconds_between(since, now)};
}

std::string to_text(const CollectiveLog& log) {
  std::ostringstream out;
  out << kRun << log.run << '\n' << log.who << '\n' << log.failure << "\n\n";
  out << "The last collectives. Times are milliseconds from the moment of the failure.\n";
  write_row(out, "number", "state", "called", "began", "ended", "what");
  for (const auto& record : log.records) {
    write_row(out, record.sequence, to_string(record.state), milliseconds(record.times.called, log.now),
              milliseconds(record.times.began, log.now), milliseconds(record.times.ended, log.now), record.what);
  }
  const auto here = position_of(log.records, log.now);
  out << kHere << here.place << kFor << decimal(here.seconds, 3) << " s\n";
  return out.str();
}

std::optional<Position> find_position(const std::string& log_text, const std::string& run) {
  if (!log_text.starts_with(text(kRun, run, '\n'))) return std::nullopt;
  const auto here = log_text.rfind(kHere);
  if (here == std::string::npos) return std::nullopt;
  const auto begin = here + kHere.size();
  const auto end = log_text.rfind(kFor);
  if (end == std::string::npos || end < begin) return std::nullopt;
  return Position{.place = log_text.substr(begin, end - begin),
                  .seconds = std::strtod(log_text.c_str() + end + kFor.size(), nullptr)};
}

std::string describe_places(const std::vector<std::optional<Position>>& ranks) {
  std::vector<Group> groups;
  std::vector<int> silent;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& here = ranks[rank];
    if (!here) {
      silent.push_back(static_cast<int>(rank));
      continue;
    }
    auto group = std::ranges::find(groups, here->place, &Group::place);
    if (group == groups.end()) group = groups.insert(groups.end(), Group{.place = here->place});
    group->ranks.push_back(static_cast<int>(rank));
    group->seconds = std::max(group->seconds, here->seconds);
  }
  if (groups.empty()) return {};
  std::vector<std::string> lines;
  for (const auto& group : groups) {
    if (lines.size() == kMaxPlaces) break;
    lines.push_back(text(ranks_in_words(group.ranks), ": ", group.place, kFor, decimal(group.seconds, 1), " s"));
  }
  if (groups.size() > kMaxPlaces) lines.push_back(text("and ", groups.size() - kMaxPlaces, " more places"));
  if (!silent.empty()) {
    lines.push_back(text(ranks_in_words(silent),
                         ": no log found: it is stopped, has ended or failed by itself, or its host has another disk"));
  }
  return join(lines, "\n");
}

}  // namespace libtrain::detail
