// One file of all ranks' spans on one clock, on ranks as threads and under mpirun.

#include <libtrain/train/timeline.hpp>

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;
using test::on_ranks;
using ::testing::HasSubstr;
using Clock = TraceSink::Clock;
using Json = nlohmann::json;

// Runs `body` on all ranks with a folder that rank 0 makes, and removes when all have done with it.
void in_shared_folder(const std::function<void(Communicator&, const fs::path&)>& body) {
  on_ranks([&body](Communicator& communicator) {
    std::string folder = ::testing::TempDir() + "timeline_XXXXXX";
    if (communicator.rank() == 0 && mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "no folder " << folder;
    folder = communicator.broadcast_bytes(folder, 0);
    body(communicator, folder);
    communicator.barrier();
    if (communicator.rank() == 0) fs::remove_all(folder);
  });
}

std::vector<Json> events(const fs::path& file, const std::string& kind) {
  std::ifstream stream{file};
  const auto trace = Json::parse(stream);
  std::vector<Json> found;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph").get<std::string>() == kind) found.push_back(event);
  }
  return found;
}

std::string name_of(const Json& event) {
  return event.at("name").get<std::string>();
}

int rank_of(const Json& event) {
  return event.at("pid").get<int>();
}

double begin_us(const Json& event) {
  return event.at("ts").get<double>();
}

double end_us(const Json& event) {
  return event.at("ts").get<double>() + event.at("dur").get<double>();
}

// How far each rank's times may be off.
std::vector<double> uncertainties_us(const Timeline& timeline, Communicator& communicator) {
  std::vector<double> result;
  const auto mine = std::to_string(timeline.clock_uncertainty().count());
  for (const auto& nanoseconds : communicator.all_gather_bytes(mine)) result.push_back(std::stod(nanoseconds) / 1000);
  return result;
}

void spin_for(std::chrono::microseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
  }
}

TEST(Timeline, ShowsWhatAllRanksDidInOneFile) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    Timeline timeline{communicator};
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::microseconds(3);
    timeline.sink().span("compute", text("forward of rank ", communicator.rank()), begin, end, "three layers");
    for (int i = 0; i < communicator.rank(); ++i) timeline.sink().span("data", "read", begin, end);
    timeline.write(folder / "timeline.json");
    if (communicator.rank() != 0) return;

    const auto spans = events(folder / "timeline.json", "X");
    std::vector<std::string> processes;
    for (const auto& event : events(folder / "timeline.json", "M")) {
      if (name_of(event) == "process_name") processes.push_back(event.at("args").at("name").get<std::string>());
    }
    ASSERT_EQ(processes.size(), static_cast<std::size_t>(communicator.world_size()));
    for (int rank = 0; rank < communicator.world_size(); ++rank) {
      EXPECT_EQ(processes[static_cast<std::size_t>(rank)], text("rank ", rank, " (", detail::host_name(), ")"));
      const auto has = [&](const std::string& name) {
        return std::count_if(spans.begin(), spans.end(),
                             [&](const Json& span) { return rank_of(span) == rank && name_of(span) == name; });
      };
      EXPECT_EQ(has(text("forward of rank ", rank)), 1);
      EXPECT_EQ(has("read"), rank);
    }
    EXPECT_EQ(spans.at(0).at("args").at("detail").get<std::string>(), "three layers");
    EXPECT_DOUBLE_EQ(spans.at(0).at("dur").get<double>(), 3.0);
  });
}

TEST(Timeline, CarriesThousandsOfSpansOfEachRank) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    constexpr int kSpans = 3000;
    Timeline timeline{communicator, {.limits = {.spans = kSpans}}};
    const auto now = Clock::now();
    for (int i = 0; i < kSpans + 7; ++i) timeline.sink().span("compute", "step", now, now, std::to_string(i));
    timeline.write(folder / "timeline.json");
    if (communicator.rank() != 0) return;
    std::vector<int> next(static_cast<std::size_t>(communicator.world_size()), 0);
    for (const auto& span : events(folder / "timeline.json", "X")) {
      auto& expected = next.at(static_cast<std::size_t>(rank_of(span)));
      EXPECT_EQ(span.at("args").at("detail").get<std::string>(), std::to_string(expected++));
    }
    for (const auto count : next) EXPECT_EQ(count, kSpans);
    int complaints = 0;
    for (const auto& event : events(folder / "timeline.json", "M")) {
      if (name_of(event) != "process_labels") continue;
      EXPECT_THAT(event.at("args").at("labels").get<std::string>(), HasSubstr("7 spans dropped"));
      ++complaints;
    }
    EXPECT_EQ(complaints, communicator.world_size());
  });
}

// No rank leaves a barrier before all have come.
TEST(Timeline, ShowsAllRanksInABarrierAtOneMoment) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    Timeline timeline{communicator};
    const auto begin = Clock::now();
    communicator.barrier();
    timeline.sink().span("communication", "barrier", begin, Clock::now());
    timeline.write(folder / "timeline.json");
    const auto uncertainties = uncertainties_us(timeline, communicator);
    if (communicator.rank() != 0) return;
    double last_begin = std::numeric_limits<double>::lowest();
    double first_end = std::numeric_limits<double>::max();
    for (const auto& span : events(folder / "timeline.json", "X")) {
      const auto error = uncertainties.at(static_cast<std::size_t>(rank_of(span)));
      last_begin = std::max(last_begin, begin_us(span) - error);
      first_end = std::min(first_end, end_us(span) + error);
    }
    EXPECT_LE(last_begin, first_end + 0.01);
  });
}

// The ranks' clocks are one clock here, that of one machine; what it shows is made wrong on all ranks but 0, and
// written into the spans as it is.
TEST(Timeline, CorrectsClocksThatAreHoursOffAndTooFast) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    const int rank = communicator.rank();
    const auto origin = Clock::now();
    const auto wrong = [origin, rank](Clock::time_point right) {
      return right + rank * std::chrono::hours(1) + rank * (right - origin);
    };
    Timeline timeline{communicator, {.now = [wrong] { return wrong(Clock::now()); }}};
    for (int i = 0; i < 5; ++i) {
      const auto right = Clock::now();
      const auto right_ns = std::chrono::nanoseconds(right.time_since_epoch()).count();
      timeline.sink().span("compute", "moment", wrong(right), wrong(right), std::to_string(right_ns));
      spin_for(std::chrono::milliseconds(2));
    }
    timeline.write(folder / "timeline.json");
    EXPECT_LT(timeline.clock_uncertainty(), std::chrono::minutes(1));
    const auto uncertainties = uncertainties_us(timeline, communicator);
    if (rank != 0) return;

    const auto spans = events(folder / "timeline.json", "X");
    ASSERT_EQ(spans.size(), 5u * static_cast<std::size_t>(communicator.world_size()));
    const auto right_ns = [](const Json& span) { return std::stoll(span.at("args").at("detail").get<std::string>()); };
    const auto shown_ns = [](const Json& span) { return std::llround(begin_us(span) * 1000); };
    ASSERT_EQ(rank_of(spans.front()), 0);
    const auto start_ns = right_ns(spans.front()) - shown_ns(spans.front());
    EXPECT_EQ(uncertainties.at(0), 0.0);
    for (const auto& span : spans) {
      const auto error_us = static_cast<double>(start_ns + shown_ns(span) - right_ns(span)) / 1000;
      EXPECT_LE(std::abs(error_us), uncertainties.at(static_cast<std::size_t>(rank_of(span))) + 0.01) << span;
    }
  });
}

TEST(Timeline, AllRanksLearnThatTheFileCannotBeWritten) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    if (communicator.rank() == 0) std::ofstream{folder / "occupied"} << "a file";
    const auto impossible = folder / "occupied" / "timeline.json";
    Timeline timeline{communicator};
    const auto expect_error = [&](const std::function<void()>& action) {
      try {
        action();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const EnvironmentError& error) {
        EXPECT_THAT(error.what(), HasSubstr(impossible.string()));
        EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
      }
    };
    expect_error([&] { timeline.require_writable(impossible); });
    expect_error([&] { timeline.write(impossible); });
    // Neither the timeline nor the communicator has suffered.
    timeline.require_writable(folder / "timeline.json");
    communicator.barrier();
    EXPECT_FALSE(fs::exists(folder / "timeline.json"));
    communicator.barrier();
    timeline.write(folder / "timeline.json");
    EXPECT_TRUE(fs::exists(folder / "timeline.json"));
  });
}

TEST(Timeline, ARankCanWriteItsOwnSpansAlone) {
  in_shared_folder([](Communicator& communicator, const fs::path& folder) {
    Timeline timeline{communicator};
    const auto now = Clock::now();
    timeline.sink().span("compute", text("step of rank ", communicator.rank()), now, now + std::chrono::seconds(1));
    // One rank after the other, each alone: it must not need the others.
    for (int rank = 0; rank < communicator.world_size(); ++rank) {
      if (rank == communicator.rank()) timeline.write_local(folder / text("timeline.json.rank", rank));
      communicator.barrier();
    }
    const auto spans = events(folder / text("timeline.json.rank", communicator.rank()), "X");
    ASSERT_EQ(spans.size(), 1u);
    EXPECT_EQ(rank_of(spans[0]), communicator.rank());
    EXPECT_EQ(name_of(spans[0]), text("step of rank ", communicator.rank()));
    EXPECT_DOUBLE_EQ(spans[0].at("dur").get<double>(), 1e6);
  });
}

}  // namespace
}  // namespace libtrain
