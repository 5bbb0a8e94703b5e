#include <libtrain/checkpoint/checkpoint_writer.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>

#include <tests/checkpoint/checkpoints.hpp>
#include <tests/support/file_size_limit.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/no_file_locks.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;
using test::checkpoint_bytes;
using test::message_of;
using test::save;
using test::write_files;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class CheckpointWriting : public ::testing::Test {
 protected:
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> steps;
    for (const auto& status : list_checkpoints(root_)) {
      EXPECT_EQ(status.problem, "");
      steps.push_back(status.step);
    }
    return steps;
  }

  // Of the root, without the lock.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) {
      if (entry.path().filename() != "lock") names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  test::TemporaryFolder folder_;
  fs::path root_ = folder_.path() / "runs" / "one";
};

TEST_F(CheckpointWriting, MakesACompleteCheckpoint) {
  CheckpointWriter writer{root_, {"first", "second"}};
  const auto begun = writer.begin(12);
  EXPECT_THAT(begun, MatchesRegex("step-00000012\\.[0-9a-f]{16}\\.partial"));
  auto files = write_files(root_, begun, 12);
  EXPECT_THAT(steps(), IsEmpty());
  const auto path = writer.commit({.step = 12,
                                   .epoch = 3,
                                   .world_size = 2,
                                   .metrics = {{"loss", 0.5}},
                                   .configuration = R"({"lr":0.1})",
                                   .files = files});
  EXPECT_EQ(path, root_ / "step-00000012");
  EXPECT_THAT(names(), ElementsAre("step-00000012"));

  const CheckpointFolder checkpoint{path};
  checkpoint.verify();
  const auto& manifest = checkpoint.manifest();
  EXPECT_EQ(manifest.step, 12);
  EXPECT_EQ(manifest.epoch, 3);
  EXPECT_EQ(manifest.world_size, 2);
  EXPECT_EQ(manifest.libtrain_version, build_info().version);
  EXPECT_EQ(manifest.torch_version, build_info().torch);
  EXPECT_GT(manifest.time, 1700000000);
  EXPECT_THAT(manifest.run_ids, ElementsAre("first", "second"));
  EXPECT_EQ(manifest.configuration, R"({"lr":0.1})");
  EXPECT_EQ(manifest.files, files);
  EXPECT_EQ(checkpoint.read("model.bin"), checkpoint_bytes(12, "model.bin", test::kModelBytes));
  EXPECT_EQ(checkpoint.read("loader.json"), "");
  EXPECT_EQ(checkpoint.file("model.bin"), path / "model.bin");
  EXPECT_EQ(checkpoint.find("other"), nullptr);
  EXPECT_THAT(message_of<EnvironmentError>([&] { checkpoint.file("other"); }), HasSubstr("has no file 'other'"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { checkpoint.read("model.bin", 999); }), HasSubstr("more than the 999"));
}

TEST_F(CheckpointWriting, WritesPiecesOfEverySizeThrough) {
  CheckpointWriter writer{root_, {"run"}};
  const auto begun = writer.begin(0);
  const auto bytes = checkpoint_bytes(0, "model.bin", 5'000'000);
  std::string_view rest = bytes;
  CheckpointFileWriter file{root_, begun, "model.bin"};
  for (std::size_t size = 1; !rest.empty(); size = 3 * size + 1) {
    file.write(rest.substr(0, size));
    rest.remove_prefix(std::min(size, rest.size()));
  }
  file.write("");
  const CheckpointFolder checkpoint{writer.commit({.files = {file.finish()}})};
  EXPECT_EQ(checkpoint.read("model.bin"), bytes);
}

TEST_F(CheckpointWriting, TakesTheFilesOfAllRanks) {
  CheckpointWriter writer{root_, {"run"}};
  const auto begun = writer.begin(1);
  std::vector<CheckpointFile> entries(3);
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < entries.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        CheckpointFileWriter file{root_, begun, "shard-" + std::to_string(rank)};
        file.write("of rank " + std::to_string(rank));
        entries[rank] = file.finish();
      });
    }
  }
  const CheckpointFolder checkpoint{writer.commit({.step = 1, .world_size = 3, .files = entries})};
  EXPECT_EQ(checkpoint.read("shard-2"), "of rank 2");
}

TEST_F(CheckpointWriting, AnAbandonedOneLeavesNothing) {
  {
    CheckpointWriter writer{root_, {"run"}};
    save(writer, 1);
    write_files(root_, writer.begin(2), 2);
    writer.abandon();
    EXPECT_THAT(names(), ElementsAre("step-00000001"));
    writer.abandon();
    write_files(root_, writer.begin(2), 2);
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(CheckpointWriting, RefusesCallsOutOfOrder) {
  EXPECT_THAT(message_of<UsageError>([&] { CheckpointWriter(root_, {}); }), HasSubstr("no run id"));
  EXPECT_THAT(message_of<UsageError>([&] { CheckpointWriter("", {"run"}); }), HasSubstr("empty path"));
  EXPECT_THAT(message_of<UsageError>([&] { CheckpointWriter(root_, {"run"}, {.last = 0}); }), HasSubstr("at least 1"));
  CheckpointWriter writer{root_, {"run"}};
  EXPECT_THAT(message_of<UsageError>([&] { writer.commit({}); }), HasSubstr("No checkpoint was begun"));
  EXPECT_THAT(message_of<UsageError>([&] { writer.begin(-1); }), HasSubstr("step -1"));
  const auto begun = writer.begin(1);
  EXPECT_THAT(message_of<UsageError>([&] { writer.begin(2); }), HasSubstr("step 1 is still being written"));
  EXPECT_THAT(message_of<UsageError>([&] { CheckpointFileWriter(root_, begun, "../x"); }),
              HasSubstr("'../x' cannot be"));
  EXPECT_THAT(message_of<UsageError>([&] { writer.commit({.step = 2}); }), HasSubstr("of step 2"));
  EXPECT_THAT(names(), IsEmpty());  // a failed commit abandons
}

TEST_F(CheckpointWriting, CommitsOnlyWhatIsThere) {
  CheckpointWriter writer{root_, {"run"}};
  const auto refusal = [&](auto change) {
    const auto begun = writer.begin(1);
    auto files = write_files(root_, begun, 1);
    change(root_ / begun, files);
    const auto message = message_of<Error>([&] { writer.commit({.step = 1, .files = files}); });
    EXPECT_THAT(names(), IsEmpty());
    return message;
  };
  using Files = std::vector<CheckpointFile>&;
  EXPECT_THAT(refusal([](const fs::path&, Files files) { files.pop_back(); }),
              HasSubstr("does not name the file 'loader.json'"));
  EXPECT_THAT(refusal([](const fs::path& path, Files) { fs::remove(path / "model.bin"); }),
              AllOf(HasSubstr("model.bin', which a rank has written, is not there"), HasSubstr("the nodes share")));
  EXPECT_THAT(refusal([](const fs::path& path, Files) { fs::resize_file(path / "model.bin", 999); }),
              HasSubstr("has 999 bytes; the rank that wrote it has written 1000"));
  EXPECT_THAT(refusal([](const fs::path& path, Files) { fs::remove_all(path); }), HasSubstr("No such file"));
  EXPECT_THAT(refusal([](const fs::path& path, Files) { test::write_file(path / "manifest.json", ""); }),
              HasSubstr("'manifest.json'"));
}

TEST_F(CheckpointWriting, RefusesAStepThatIsThere) {
  CheckpointWriter writer{root_, {"run"}};
  save(writer, 5);
  EXPECT_THAT(message_of<EnvironmentError>([&] { writer.begin(5); }),
              AllOf(HasSubstr("step-00000005' exists already and is undamaged"), HasSubstr("another folder")));
  test::write_file(root_ / "step-00000006", "a file");
  EXPECT_THAT(message_of<EnvironmentError>([&] { writer.begin(6); }), HasSubstr("File exists"));
  EXPECT_THAT(names(), ElementsAre("step-00000005", "step-00000006"));
}

TEST_F(CheckpointWriting, RenamesADamagedOneOfTheSameStep) {
  CheckpointWriter writer{root_, {"run"}};
  const auto path = save(writer, 5);
  auto bytes = test::read_file(path / "model.bin");
  bytes[700] = static_cast<char>(bytes[700] + 1);
  test::write_file(path / "model.bin", bytes);
  const test::CapturedLog log{LogLevel::warning};
  save(writer, 5);
  EXPECT_THAT(steps(), ElementsAre(5));
  CheckpointFolder{path}.verify();
  EXPECT_THAT(names(), ElementsAre("step-00000005", MatchesRegex("step-00000005\\.[0-9a-f]{16}\\.damaged")));
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr(".damaged'"), HasSubstr("tensor 'second'"))));
}

TEST_F(CheckpointWriting, RemovesWhatKilledRunsLeft) {
  for (const auto* name : {"step-00000001.0123456789abcdef.partial", "step-00000002.0123456789abcdef.removed"}) {
    fs::create_directories(root_ / name);
    test::write_file(root_ / name / "model.bin", "x");
  }
  // None of these has a name of the format's.
  const std::vector<std::string> others{"model",
                                        "step-00000003.0123456789abcde.partial",
                                        "step-00000003.0123456789abcdeF.partial",
                                        "step-00000003.0123456789abcdef.damaged",
                                        "step-00000003.partial",
                                        "step-3.0123456789abcdef.partial",
                                        "x.0123456789abcdef.partial"};
  for (const auto& name : others) fs::create_directories(root_ / name);
  const CheckpointWriter writer{root_, {"run"}};
  EXPECT_EQ(names(), others);
}

TEST_F(CheckpointWriting, NamesALeftoverThatItCannotRemoveOnce) {
  const auto left = root_ / "step-00000001.0123456789abcdef.partial";
  fs::create_directories(left / "folder");
  const test::CapturedLog log{LogLevel::warning};
  CheckpointWriter writer{root_, {"run"}};
  save(writer, 2);
  EXPECT_THAT(steps(), ElementsAre(2));
  EXPECT_TRUE(fs::exists(left / "folder"));
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr(left.string()), HasSubstr("by hand"))));
}

TEST_F(CheckpointWriting, FollowsNoLinks) {
  const auto elsewhere = folder_.path() / "elsewhere";
  fs::create_directories(elsewhere);
  test::write_file(elsewhere / "file", "untouched");
  fs::create_directories(root_);
  const auto left = root_ / "step-00000001.0123456789abcdef.partial";
  fs::create_directory_symlink(elsewhere, left);
  fs::create_symlink(elsewhere / "file", root_ / "best.json.partial");
  const test::CapturedLog log{LogLevel::warning};
  CheckpointWriter writer{root_, {"run"}};
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr(left.string())));
  EXPECT_THROW(CheckpointFileWriter(root_, left.filename().string(), "model.bin"), EnvironmentError);

  const auto begun = writer.begin(3);
  fs::create_symlink(elsewhere / "file", root_ / begun / "model.bin");
  EXPECT_THAT(message_of<EnvironmentError>([&] { CheckpointFileWriter(root_, begun, "model.bin"); }),
              HasSubstr("File exists"));
  writer.abandon();
  save(writer, 4);
  EXPECT_THROW(writer.mark_best(4), EnvironmentError);
  fs::create_directory_symlink(root_ / "step-00000004", root_ / "step-00000005");
  EXPECT_THAT(message_of<EnvironmentError>([&] { writer.begin(5); }), HasSubstr("File exists"));
  EXPECT_EQ(test::read_file(elsewhere / "file"), "untouched");
  EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere), {}), 1);
}

TEST_F(CheckpointWriting, RefusesALockThatIsALink) {
  fs::create_directories(root_);
  test::write_file(folder_ / "file", "untouched");
  fs::create_symlink(folder_ / "file", root_ / "lock");
  EXPECT_THAT(message_of<EnvironmentError>([&] { CheckpointWriter(root_, {"run"}); }),
              AllOf(HasSubstr((root_ / "lock").string()), HasSubstr("symbolic links")));
  EXPECT_EQ(test::read_file(folder_ / "file"), "untouched");
}

TEST_F(CheckpointWriting, RefusesASecondWriter) {
  std::optional<CheckpointWriter> first{std::in_place, root_, std::vector<std::string>{"first"}};
  const auto files = write_files(root_, first->begin(1), 1);
  EXPECT_THAT(
      message_of<EnvironmentError>([&] { CheckpointWriter(root_, {"second"}); }),
      MatchesRegex("This process \\(run first, process [0-9]+ on .*, since 20.* UTC\\) is writing checkpoints to "
                   "'.*one'\\. Use its CheckpointWriter, or another folder\\."));
  test::write_file(root_ / "lock", "{");
  EXPECT_THAT(message_of<EnvironmentError>([&] { CheckpointWriter(root_, {"second"}); }),
              ::testing::StartsWith("Another run is writing checkpoints to '"));
  first->commit({.step = 1, .files = files});
  first.reset();
  CheckpointWriter(root_, {"second"});
}

TEST_F(CheckpointWriting, GoesOnWithAWarningWhereTheFileSystemHasNoLocks) {
  const auto left = root_ / "step-00000001.0123456789abcdef.partial";
  fs::create_directories(left);
  const test::CapturedLog log{LogLevel::warning};
  test::without_file_locks([&] {
    CheckpointWriter writer{root_, {"run"}, {.last = 1}};
    save(writer, 2);
    save(writer, 3);
  });
  EXPECT_THAT(steps(), ElementsAre(3));
  EXPECT_TRUE(fs::exists(left));  // another run may be writing it
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("lock' (No locks available)"), HasSubstr("not detected"))));
}

TEST_F(CheckpointWriting, KeepsTheLastTheBestAndTheMarkedOne) {
  CheckpointWriter writer{root_, {"run"}, {.last = 2, .metric = "loss"}};
  save(writer, 1, {{"loss", 0.7}});
  save(writer, 2, {{"loss", 0.3}});
  save(writer, 3, {{"loss", 0.9}});
  writer.mark_best(3);
  save(writer, 4, {{"loss", 0.5}, {"other", 0.0}});
  save(writer, 5);
  save(writer, 6);
  EXPECT_THAT(steps(), ElementsAre(2, 3, 5, 6));
  EXPECT_EQ(find_best_checkpoint(root_)->manifest().step, 3);
  writer.mark_best(5);
  save(writer, 7);
  save(writer, 8);
  EXPECT_THAT(steps(), ElementsAre(2, 5, 7, 8));
  EXPECT_EQ(test::read_file(root_ / "best.json"), "{\"step\": 5}\n");
  EXPECT_THAT(message_of<UsageError>([&] { writer.mark_best(4); }), HasSubstr("step-00000004' is not a complete"));
}

TEST_F(CheckpointWriting, ADamagedMarkKeepsAllAndIsNamed) {
  CheckpointWriter writer{root_, {"run"}, {.last = 1}};
  save(writer, 1);
  test::write_file(root_ / "best.json", "{\"step\": -1}\n");
  const test::CapturedLog log{LogLevel::warning};
  save(writer, 2);
  save(writer, 3);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("Old checkpoints remain"), HasSubstr("best.json' is damaged"))));
  EXPECT_THROW(find_best_checkpoint(root_), EnvironmentError);
}

TEST_F(CheckpointWriting, RemovesOnlyWhatItsRunsHaveWritten) {
  const CheckpointRetention one{.last = 1};
  {
    CheckpointWriter writer{root_, {"another"}, one};
    save(writer, 900);
  }
  {
    CheckpointWriter writer{root_, {"first"}, one};
    save(writer, 100);
    EXPECT_THAT(steps(), ElementsAre(100, 900));
  }
  CheckpointWriter writer{root_, {"first", "second"}, one};
  save(writer, 50);  // continued from an earlier step: newer than 100 all the same
  EXPECT_THAT(steps(), ElementsAre(50, 900));
}

TEST_F(CheckpointWriting, KeepsACheckpointToWhichAFileWasAdded) {
  CheckpointWriter writer{root_, {"run"}, {.last = 1}};
  test::write_file(save(writer, 1) / "notes.txt", "mine");
  const test::CapturedLog log{LogLevel::warning};
  save(writer, 2);
  save(writer, 3);
  EXPECT_THAT(steps(), ElementsAre(1, 3));
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("step-00000001' is kept"), HasSubstr("'notes.txt' was added"))));
}

TEST_F(CheckpointWriting, ADamagedOneIsNeitherCountedNorRemoved) {
  CheckpointWriter writer{root_, {"run"}, {.last = 2}};
  save(writer, 1);
  fs::resize_file(save(writer, 2) / "model.bin", 10);
  save(writer, 3);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
  save(writer, 4);
  EXPECT_THAT(names(), ElementsAre("step-00000002", "step-00000003", "step-00000004"));
}

TEST_F(CheckpointWriting, AFileThatCannotGrowIsAnErrorAndTheOlderOneRemains) {
  CheckpointWriter writer{root_, {"run"}};
  save(writer, 1);
  const auto begun = writer.begin(2);
  CheckpointFileWriter file{root_, begun, "model.bin"};
  const std::string bytes(3 << 20, 'x');
  {
    const test::FileSizeLimit limit{1'000'000};
    EXPECT_THAT(message_of<EnvironmentError>([&] { file.write(bytes); }),
                AllOf(HasSubstr("model.bin': File too large"), HasSubstr("ulimit -f")));
  }
  EXPECT_THROW(file.write("x"), EnvironmentError);
  EXPECT_THROW(file.finish(), EnvironmentError);
  writer.abandon();
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(CheckpointWriting, NamesAFolderThatCannotBeMade) {
  EXPECT_THAT(message_of<EnvironmentError>([] { CheckpointWriter("/sys/kernel/checkpoints", {"run"}); }),
              HasSubstr("Cannot create the folder '/sys/kernel/checkpoints': "));
  test::write_file(folder_ / "file", "");
  EXPECT_THAT(message_of<EnvironmentError>([&] { CheckpointWriter(folder_ / "file", {"run"}); }),
              AllOf(HasSubstr("Not a directory"), HasSubstr("another folder")));
}

TEST_F(CheckpointWriting, SetsCheckpointsAsideUnlessARunIsWriting) {
  EXPECT_EQ(set_aside_checkpoints(root_), std::nullopt);
  {
    CheckpointWriter writer{root_, {"first"}};
    EXPECT_EQ(set_aside_checkpoints(root_), std::nullopt);
    save(writer, 1);
    EXPECT_THAT(message_of<EnvironmentError>([&] { set_aside_checkpoints(root_); }),
                HasSubstr("is writing checkpoints"));
  }
  const auto first = set_aside_checkpoints(root_);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->string(), root_.string() + ".1");
  EXPECT_FALSE(fs::exists(root_));
  {
    CheckpointWriter writer{root_, {"second"}};
    save(writer, 1);
    save(writer, 2);
  }
  EXPECT_EQ(set_aside_checkpoints(root_)->string(), root_.string() + ".2");
  EXPECT_EQ(list_checkpoints(root_.string() + ".1").size(), 1U);
  EXPECT_EQ(list_checkpoints(root_.string() + ".2").size(), 2U);
}

TEST_F(CheckpointWriting, NumbersWhatIsSetAsideAfterTheHighestAndFindsTheLatest) {
  const auto name_after = [&](std::int64_t step) {
    {
      CheckpointWriter writer{root_, {"run"}};
      save(writer, step);
    }
    return set_aside_checkpoints(root_)->string();
  };
  EXPECT_EQ(latest_set_aside(root_), "");
  EXPECT_EQ(name_after(1), root_.string() + ".1");
  EXPECT_EQ(name_after(2), root_.string() + ".2");
  EXPECT_EQ(latest_set_aside(root_), root_.string() + ".2");
  EXPECT_EQ(latest_set_aside(root_, "step-00000001"), root_.string() + ".1/step-00000001");
  EXPECT_EQ(latest_set_aside(root_, "step-00000003"), "");
  fs::remove_all(root_.string() + ".1");
  EXPECT_EQ(name_after(3), root_.string() + ".3");
}

}  // namespace
}  // namespace libtrain
