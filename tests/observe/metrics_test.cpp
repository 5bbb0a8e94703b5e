#include <libtrain/observe/metrics.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>

#include <tests/support/file_size_limit.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/no_file_locks.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Metrics : public ::testing::Test {
 protected:
  Metrics() {
    std::string pattern = ::testing::TempDir() + "metrics_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }

  ~Metrics() override { fs::remove_all(directory_); }

  static std::string content(const fs::path& file) {
    std::ifstream stream{file, std::ios::binary};
    return {std::istreambuf_iterator<char>{stream}, {}};
  }

  static std::vector<nlohmann::json> records(const fs::path& file) {
    std::ifstream stream{file};
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(stream, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  void put(const std::string& bytes) const { std::ofstream{file_in_directory(), std::ios::binary} << bytes; }

  fs::path file_in_directory() const { return directory_ / "metrics.jsonl"; }

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

TEST_F(Metrics, CreatesTheDirectoryAndStampsEveryLine) {
  const auto nested = directory_ / "a" / "b";
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  MetricsWriter writer{nested};
  writer.write(Record{"run"}.set("world_size", 2));
  writer.write(Record{"step"}.set("loss", 0.5));
  writer.sync();
  const auto all = records(nested / "metrics.jsonl");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["event"], "run");
  EXPECT_EQ(all[0]["world_size"], 2);
  EXPECT_EQ(all[1]["loss"], 0.5);
  EXPECT_GE(all[0]["time"].get<double>(), std::chrono::duration<double>(before).count());
  EXPECT_GE(all[1]["time"].get<double>(), all[0]["time"].get<double>());
}

TEST_F(Metrics, AddsToWhatIsThere) {
  MetricsWriter{directory_}.write(Record{"run"});
  MetricsWriter{directory_}.write(Record{"summary"});
  EXPECT_EQ(records(file_in_directory()).size(), 2u);
}

TEST_F(Metrics, ALineIsThereAsSoonAsWriteReturns) {
  MetricsWriter writer{directory_};
  writer.write(Record{"step"});
  EXPECT_EQ(records(file_in_directory()).size(), 1u);
}

TEST_F(Metrics, CutsOffTheUnfinishedLineOfAKilledProcess) {
  const std::string whole = "{\"event\":\"run\",\"time\":1.0}\n";
  const std::string torn = "{\"event\":\"step\",\"text\":\"" + std::string(9000, 'x');
  for (const auto& before : {std::string{}, whole, whole + whole}) {
    put(before + torn);
    MetricsWriter{directory_};
    EXPECT_EQ(content(file_in_directory()), before);
  }
}

TEST_F(Metrics, LeavesAFileOfAnotherKindAlone) {
  put("first line\nnot a record");
  EXPECT_THAT(message_of([&] { MetricsWriter{directory_}; }), HasSubstr("metrics.jsonl"));
  EXPECT_EQ(content(file_in_directory()), "first line\nnot a record");
}

TEST_F(Metrics, GivesEveryRecordTheIdOfTheRun) {
  MetricsWriter{directory_, "one"}.write(Record{"run"});
  MetricsWriter{directory_, "two"}.write(Record{"run"});
  const auto all = records(file_in_directory());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["run_id"], "one");
  EXPECT_EQ(all[1]["run_id"], "two");
}

TEST_F(Metrics, RefusesASecondRunAndNamesTheFirst) {
  put("{\"event\":\"run\",\"time\":1.0,\"run_id\":\"killed\",\"host\":\"node-1\",\"process\":1}\n");
  MetricsWriter{directory_, "done"}.write(Record{"run"});
  MetricsWriter{directory_, "done"}.write(Record{"summary"});
  MetricsWriter first{directory_, "first"};
  first.write(Record{"run"}.set("host", "node-7").set("process", 4242));
  MetricsWriter latecomer{directory_, "latecomer", MetricsWriter::InUse::shared};
  latecomer.write(Record{"run"});
  latecomer.write(Record{"summary"});
  const auto before = content(file_in_directory());
  for (const auto& action : std::vector<std::function<void()>>{[&] { MetricsWriter{directory_, "second"}; },
                                                               [&] { MetricsWriter::require_free(directory_); }}) {
    const auto message = message_of(action);
    EXPECT_THAT(message, HasSubstr("Another run (run first, process 4242 on node-7, since 20"));
    EXPECT_THAT(message, HasSubstr("is writing to '" + file_in_directory().string() + "'"));
  }
  EXPECT_EQ(content(file_in_directory()), before);
  {
    const auto gone = std::move(first);
  }
  MetricsWriter::require_free(directory_);
  MetricsWriter{directory_, "second"}.write(Record{"run"});
}

TEST_F(Metrics, RefusesASecondRunWhateverTheFileHolds) {
  const MetricsWriter first{directory_};
  for (const auto* line : {"", "{\"event\":\"run\",\"run_id\":7,\"process\":\"x\"}\n", "{\"event\":\"run\",\n"}) {
    put(line);
    EXPECT_THAT(message_of([&] { MetricsWriter{directory_}; }), ::testing::StartsWith("Another run is writing to '"));
  }
}

TEST_F(Metrics, ALatecomerLeavesALineThatIsBeingWrittenAlone) {
  const MetricsWriter first{directory_};
  put("{\"event\":\"st");
  MetricsWriter{directory_, "latecomer", MetricsWriter::InUse::shared};
  EXPECT_EQ(content(file_in_directory()), "{\"event\":\"st");
}

TEST_F(Metrics, NothingIsMadeToSeeWhetherAFolderIsFree) {
  MetricsWriter::require_free(directory_);
  MetricsWriter::require_free(directory_ / "missing");
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(Metrics, DevicesAreShared) {
  fs::create_symlink("/dev/null", file_in_directory());
  const MetricsWriter first{directory_};
  const MetricsWriter second{directory_};
}

TEST_F(Metrics, GoesOnWithAWarningWhereTheFileSystemHasNoLocks) {
  const test::CapturedLog log{LogLevel::warning};
  test::without_file_locks([&] {
    MetricsWriter::require_free(directory_);
    MetricsWriter{directory_}.write(Record{"run"});
  });
  EXPECT_EQ(records(file_in_directory()).size(), 1u);
  EXPECT_THAT(log.lines(), ::testing::ElementsAre(HasSubstr("metrics.jsonl' (No locks available)")));
}

TEST_F(Metrics, DisabledAcceptsAndDrops) {
  auto writer = MetricsWriter::disabled();
  writer.write(Record{"step"});
  writer.sync();
  EXPECT_TRUE(writer.is_disabled());
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(Metrics, WritesToAFileOfAnyName) {
  const auto file = directory_ / "bench.json";
  auto writer = MetricsWriter::to_file(file);
  auto moved = std::move(writer);
  moved.write(Record{"all_reduce"}.set("bytes", 67108864));
  EXPECT_EQ(records(file).at(0)["bytes"], 67108864);
}

TEST_F(Metrics, AFullDiskIsAnErrorWithNameAndReason) {
  auto writer = MetricsWriter::to_file("/dev/full");
  const auto message = message_of([&] { writer.write(Record{"step"}); });
  EXPECT_EQ(message, "Cannot write to the metrics file '/dev/full': No space left on device.");
}

TEST_F(Metrics, APartOfALineIsTakenBack) {
  MetricsWriter writer{directory_};
  writer.write(Record{"step"}.set("step", 1));
  const std::string before = content(file_in_directory());
  const auto large = Record{"step"}.set("text", std::string(500, 'x'));
  {
    const test::FileSizeLimit limit{before.size() + 100};
    const auto message = message_of([&] { writer.write(large); });
    EXPECT_THAT(message, HasSubstr("metrics.jsonl': File too large."));
  }
  EXPECT_EQ(content(file_in_directory()), before);
  writer.write(large);
  EXPECT_EQ(records(file_in_directory()).size(), 2u);
}

TEST_F(Metrics, NamesADirectoryThatCannotBeMade) {
  put("");
  EXPECT_THAT(message_of([&] { MetricsWriter{file_in_directory() / "inside"}; }), HasSubstr("Not a directory"));
}

TEST_F(Metrics, KeepsLinesOfThreadsWhole) {
  MetricsWriter writer{directory_};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&writer] {
        for (int i = 0; i < 100; ++i) writer.write(Record{"step"}.set("text", std::string(5000, 'x')));
      });
    }
  }
  EXPECT_EQ(records(file_in_directory()).size(), 400u);
}

}  // namespace
}  // namespace libtrain
