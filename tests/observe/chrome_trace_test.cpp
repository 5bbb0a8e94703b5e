#include <libtrain/observe/detail/chrome_trace.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>

#include <tests/support/file_size_limit.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;
using Json = nlohmann::json;

class ChromeTrace : public testing::Test {
 protected:
  ChromeTrace() {
    std::string pattern = testing::TempDir() + "chrome_trace_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }

  ~ChromeTrace() override { fs::remove_all(directory_); }

  fs::path path() const { return directory_ / "timeline.json"; }

  static std::string content(const fs::path& file) {
    std::ifstream stream{file, std::ios::binary};
    return {std::istreambuf_iterator<char>{stream}, {}};
  }

  /// The events of a kind: "X" for spans, "M" for names.
  std::vector<Json> events(const std::string& kind) const {
    std::vector<Json> found;
    const auto document = Json::parse(content(path()));
    for (const auto& event : document.at("traceEvents")) {
      if (event.at("ph").get<std::string>() == kind) found.push_back(event);
    }
    return found;
  }

  /// What the file says of a process (thread 0) or of a thread, such as its "thread_name"; null where it says nothing.
  Json metadata(int process, int thread, const std::string& what) const {
    Json found;
    for (const auto& event : events("M")) {
      if (event.at("pid").get<int>() != process || event.at("tid").get<int>() != thread) continue;
      if (event.at("name").get<std::string>() != what) continue;
      EXPECT_TRUE(found.is_null()) << what << " is there twice";
      found = event.at("args").front();
    }
    return found;
  }

  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator{directory_}, fs::directory_iterator{}); }

  void write(int rank, const Trace& trace) const {
    detail::ChromeTraceFile file{path()};
    file.add(rank, trace);
    file.finish();
  }

  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return "no EnvironmentError";
  }

  fs::path directory_;
};

Trace one_span(std::int64_t begin_ns, std::int64_t end_ns) {
  return {.texts = {"lane", "name", ""},
          .spans = {{.lane = 0, .name = 1, .detail = 2, .begin_ns = begin_ns, .end_ns = end_ns}}};
}

TEST_F(ChromeTrace, ShowsRanksAsProcessesAndLanesAsThreads) {
  detail::ChromeTraceFile file{path()};
  file.add(0, {.process = "rank 0 (here)",
               .texts = {"compute", "forward", "communication", "reduce", "bucket 3", ""},
               .spans = {{.lane = 0, .name = 1, .detail = 5, .begin_ns = 1000, .end_ns = 3500},
                         {.lane = 2, .name = 3, .detail = 4, .begin_ns = 2000, .end_ns = 2042}}});
  // On this rank the second lane comes first.
  file.add(1, {.process = "rank 1 (there)",
               .texts = {"communication", "reduce", ""},
               .spans = {{.lane = 0, .name = 1, .detail = 2, .begin_ns = 4000, .end_ns = 4000}}});
  file.finish();

  EXPECT_EQ(metadata(0, 0, "process_name"), "rank 0 (here)");
  EXPECT_EQ(metadata(1, 0, "process_name"), "rank 1 (there)");
  EXPECT_EQ(metadata(1, 0, "process_sort_index"), 1);
  EXPECT_EQ(metadata(0, 1, "thread_name"), "compute");
  EXPECT_EQ(metadata(0, 2, "thread_name"), "communication");
  EXPECT_EQ(metadata(1, 2, "thread_name"), "communication");
  EXPECT_EQ(metadata(1, 1, "thread_name"), Json{});
  const auto spans = events("X");
  ASSERT_THAT(spans, SizeIs(3));
  EXPECT_EQ(spans[0], Json::parse(R"({"ph":"X","pid":0,"tid":1,"ts":1.0,"dur":2.5,"name":"forward"})"));
  EXPECT_EQ(spans[1], Json::parse(R"({"ph":"X","pid":0,"tid":2,"ts":2.0,"dur":0.042,"name":"reduce",
                                      "args":{"detail":"bucket 3"}})"));
  EXPECT_EQ(spans[2], Json::parse(R"({"ph":"X","pid":1,"tid":2,"ts":4.0,"dur":0.0,"name":"reduce"})"));
}

TEST_F(ChromeTrace, WritesTimesToTheNanosecond) {
  write(0, one_span(1'234'567'890'123'456'789, 1'234'567'890'123'456'794));
  EXPECT_THAT(content(path()), HasSubstr("\"ts\":1234567890123456.789,\"dur\":0.005,"));
  write(0, one_span(-1'000'001, -999'999));
  EXPECT_THAT(content(path()), HasSubstr("\"ts\":-1000.001,\"dur\":0.002,"));
  write(0, one_span(-1, 0));
  EXPECT_THAT(content(path()), HasSubstr("\"ts\":-0.001,\"dur\":0.001,"));
}

TEST_F(ChromeTrace, EscapesTexts) {
  const std::string odd = "line\nquote\" back\\slash \x01";
  write(0, {.process = odd,
            .texts = {odd, odd + "name", "not UTF-8: \xff."},
            .spans = {{.lane = 0, .name = 1, .detail = 2, .begin_ns = 0, .end_ns = 1}}});
  EXPECT_EQ(metadata(0, 0, "process_name"), odd);
  EXPECT_EQ(metadata(0, 1, "thread_name"), odd);
  EXPECT_EQ(events("X").at(0).at("name"), odd + "name");
  EXPECT_EQ(events("X").at(0).at("args").at("detail"), "not UTF-8: \xef\xbf\xbd.");
}

TEST_F(ChromeTrace, TakesTheSpansOfARankInParts) {
  detail::ChromeTraceFile file{path()};
  for (int part = 0; part < 3; ++part) file.add(7, one_span(part, part + 1));
  file.finish();
  EXPECT_EQ(metadata(7, 0, "process_name"), "rank 7");
  EXPECT_EQ(metadata(7, 1, "thread_name"), "lane");
  EXPECT_THAT(events("X"), SizeIs(3));
}

TEST_F(ChromeTrace, SaysWhatIsMissing) {
  write(0, {.note = "clock within 3 us", .dropped = 5});
  EXPECT_EQ(metadata(0, 0, "process_labels"), "clock within 3 us, 5 spans dropped");
  write(0, {.dropped = 5});
  EXPECT_EQ(metadata(0, 0, "process_labels"), "5 spans dropped");
  write(0, {.note = "clock within 3 us"});
  EXPECT_EQ(metadata(0, 0, "process_labels"), "clock within 3 us");
  write(0, {});
  EXPECT_EQ(metadata(0, 0, "process_labels"), Json{});
}

TEST_F(ChromeTrace, IsJsonWithoutAnyProcess) {
  detail::ChromeTraceFile{path()}.finish();
  EXPECT_TRUE(Json::parse(content(path())).at("traceEvents").empty());
}

TEST_F(ChromeTrace, MakesItsFolder) {
  detail::ChromeTraceFile{directory_ / "a" / "b" / "timeline.json"}.finish();
  EXPECT_TRUE(fs::is_regular_file(directory_ / "a" / "b" / "timeline.json"));
}

TEST_F(ChromeTrace, LeavesWhatWasThereUntilItIsFinished) {
  std::ofstream{path()} << "of the last run";
  {
    detail::ChromeTraceFile file{path()};
    file.add(0, one_span(0, 1));
    EXPECT_EQ(content(path()), "of the last run");
  }
  EXPECT_EQ(content(path()), "of the last run");
  EXPECT_EQ(files(), 1);
  write(0, one_span(0, 1));
  EXPECT_THAT(events("X"), SizeIs(1));
  EXPECT_EQ(files(), 1);
}

TEST_F(ChromeTrace, AFullDiskIsAnErrorAndLeavesNoFile) {
  auto trace = one_span(0, 1);
  // A few spans fit the buffer and fail when the file is finished, many fail before.
  for (const auto spans : {std::size_t{10}, std::size_t{100'000}}) {
    trace.spans.resize(spans, trace.spans.front());
    const auto message = message_of([&] {
      const test::FileSizeLimit limit{100};
      write(0, trace);
    });
    EXPECT_THAT(message, HasSubstr("timeline.json': File too large."));
    EXPECT_EQ(files(), 0);
  }
}

TEST_F(ChromeTrace, LeavesADeviceWhatItIs) {
  fs::create_symlink("/dev/full", path());
  EXPECT_NO_THROW(detail::ChromeTraceFile::require_writable(path()));
  EXPECT_THAT(message_of([&] { write(0, one_span(0, 1)); }), HasSubstr("timeline.json': No space left on device."));
  EXPECT_TRUE(fs::is_symlink(path()));
  EXPECT_EQ(files(), 1);
}

TEST_F(ChromeTrace, NamesAPlaceWhereNoFileCanBe) {
  std::ofstream{path()} << "a file";
  EXPECT_THAT(message_of([&] { detail::ChromeTraceFile{path() / "inside"}; }), HasSubstr("Not a directory"));
  EXPECT_THAT(message_of([&] { detail::ChromeTraceFile{directory_}; }), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace libtrain
