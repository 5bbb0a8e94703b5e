#include <libtrain/comm/detail/collective_log.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <iomanip>
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

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

bool is_reached(Clock::time_point time) {
  return time != Clock::time_point{};
}

std::string name_of(const CollectiveRecord& record) {
  return text(record.what, " (collective number ", record.sequence, ")");
}

std::string in_milliseconds(Clock::time_point time, Clock::time_point now) {
  return is_reached(time) ? decimal(1000 * seconds_between(now, time), 1) : "-";
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
  if (records.empty()) return {.place = "before its first collective"};
  // Collectives run in the order of the calls, and the first failure makes all later ones fail.
  const auto unfinished = std::ranges::find_if(records, [](const auto& record) { return record.state != State::done; });
  if (unfinished == records.end()) {
    const auto& last = records.back();
    return {text("outside of collectives, after ", name_of(last)), seconds_between(last.times.ended, now)};
  }
  const auto& times = unfinished->times;
  const auto since = is_reached(times.began) ? times.began : times.called;
  return {text("in ", name_of(*unfinished)), seconds_between(since, now)};
}

std::string to_text(const CollectiveLog& log) {
  OutputText out;
  out << kRun << log.run << '\n' << log.who << '\n' << log.failure << "\n\n";
  out << "The last collectives. Times are milliseconds from the moment of the failure.\n";
  write_row(out, "number", "state", "called", "began", "ended", "what");
  for (const auto& record : log.records) {
    write_row(out, record.sequence, to_string(record.state), in_milliseconds(record.times.called, log.now),
              in_milliseconds(record.times.began, log.now), in_milliseconds(record.times.ended, log.now), record.what);
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
  Position position{.place = log_text.substr(begin, end - begin)};
  std::from_chars(log_text.data() + end + kFor.size(), log_text.data() + log_text.size(), position.seconds);
  return position;
}

std::string describe_places(const std::vector<std::optional<Position>>& ranks) {
  std::vector<std::string> places;
  for (const auto& here : ranks) places.push_back(here ? here->place : "");
  std::vector<std::string> lines;
  std::vector<int> unknown;
  std::size_t known_places = 0;
  for (const auto& [place, members] : group_ranks(places)) {
    if (place.empty()) {
      unknown = members;
    } else if (++known_places <= kMaxPlaces) {
      double seconds = 0;
      for (const int rank : members) seconds = std::max(seconds, ranks[static_cast<std::size_t>(rank)]->seconds);
      lines.push_back(text(ranks_in_words(members), ": ", place, kFor, decimal(seconds, 1), " s"));
    }
  }
  if (lines.empty()) return {};
  if (known_places > kMaxPlaces) lines.push_back(text("and ", known_places - kMaxPlaces, " more places"));
  if (!unknown.empty()) {
    lines.push_back(text(ranks_in_words(unknown),
                         ": no collective log found (the rank is stopped, has exited, failed for a different reason, "
                         "or writes to a disk that this host cannot read)"));
  }
  return join(lines, "\n");
}

}  // namespace libtrain::detail
