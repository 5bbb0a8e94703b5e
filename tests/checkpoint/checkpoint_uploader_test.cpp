#include <libtrain/checkpoint/detail/checkpoint_uploader.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <latch>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>

#include <tests/checkpoint/checkpoints.hpp>
#include <tests/checkpoint/manifest_seal.hpp>
#include <tests/checkpoint/memory_object_store.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::detail {
namespace {

namespace fs = std::filesystem;
using test::checkpoint_bytes;
using test::MemoryObjectStore;
using test::message_of;
using test::StoreFault;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

// A run that writes checkpoints to its own root and to the store.
struct UploadingRun {
  UploadingRun(MemoryObjectStore& store, const fs::path& root, std::vector<std::string> run_ids, int keep = 2)
      : writer(root, run_ids, {.last = keep}), uploader(store, root, std::move(run_ids), {.last = keep}) {}

  void save(std::int64_t step, std::map<std::string, double> metrics = {}) {
    test::save(writer, step, std::move(metrics));
    uploader.start(step);
    uploader.finish();
  }

  CheckpointWriter writer;
  CheckpointUploader uploader;
};

class CheckpointUploading : public ::testing::Test {
 protected:
  fs::path root(const std::string& name) const { return folder_.path() / name; }

  // The step of the newest checkpoint, which a machine without any finds in the store; -1 if there is none. What is in
  // its files is compared with what was written.
  std::int64_t newest_for_others(MemoryObjectStore& store) {
    const auto other = root(text("other-", ++others_));
    const auto found = fetch(store, other);
    if (!found.checkpoint) return -1;
    const auto step = found.checkpoint->manifest().step;
    EXPECT_EQ(found.checkpoint->path(), other / checkpoint_folder_name(step));
    found.checkpoint->verify();
    EXPECT_EQ(found.checkpoint->read("model.bin"), checkpoint_bytes(step, "model.bin", test::kModelBytes));
    EXPECT_EQ(found.checkpoint->read("loader.json"), "");
    return step;
  }

  static NewestCheckpoint fetch(MemoryObjectStore& store, const fs::path& root) {
    std::optional<CheckpointWriter> writer;
    return fetch_newest_checkpoint(store, root, [&]() -> CheckpointWriter& {
      return writer ? *writer : writer.emplace(root, std::vector<std::string>{"fetching"});
    });
  }

  // The steps of the undamaged checkpoints in the store. None may be damaged.
  static std::vector<std::int64_t> complete(MemoryObjectStore& store) {
    std::vector<std::int64_t> steps;
    const auto folders = list_stored_folders(store);
    for (const auto& [step, files] : folders.steps) {
      if (!folders.has_manifest(step)) continue;
      verify_stored_checkpoint(store, read_stored_manifest(store, folders, step).manifest);
      steps.push_back(step);
    }
    return steps;
  }

  // The same, where others may be damaged.
  static std::vector<std::int64_t> undamaged(MemoryObjectStore& store) {
    std::vector<std::int64_t> steps;
    const auto folders = list_stored_folders(store);
    for (const auto& [step, files] : folders.steps) {
      try {
        verify_stored_checkpoint(store, read_stored_manifest(store, folders, step).manifest);
        steps.push_back(step);
      } catch (const CheckpointDamagedError&) {
      }
    }
    return steps;
  }

  static std::vector<std::string> names(const MemoryObjectStore& store) {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : store.objects) names.push_back(name);
    return names;
  }

  MemoryObjectStore store_;

 private:
  test::TemporaryFolder folder_{"/dev/shm/libtrain_"};  // in memory: the disk has tests of its own
  int others_ = 0;
};

TEST_F(CheckpointUploading, PutsTheFilesThenTheManifest) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  std::vector<std::string> puts;
  store_.before_put = [&](const std::string& name) { puts.push_back(name); };
  run.save(100);
  EXPECT_THAT(puts, ElementsAre("writer.json", "step-00000100/model.bin", "step-00000100/loader.json",
                                "step-00000100/manifest.json"));
  EXPECT_EQ(store_.objects.at("step-00000100/model.bin"), checkpoint_bytes(100, "model.bin", test::kModelBytes));
  run.uploader.wait();
  EXPECT_THAT(puts, SizeIs(4));
  EXPECT_EQ(newest_for_others(store_), 100);
}

TEST_F(CheckpointUploading, KeepsTheOneThatIsMarkedAsTheBest) {
  UploadingRun run{store_, root("one"), {"run-1"}, 1};
  run.save(100);
  run.writer.mark_best(100);
  run.save(200);
  run.save(300);
  EXPECT_THAT(complete(store_), ElementsAre(100, 300));
  store_.objects.at("step-00000100/manifest.json").pop_back();
  const auto manifests = list_stored_manifests(store_);
  ASSERT_THAT(manifests, SizeIs(1));
  EXPECT_EQ(manifests.front().step, 300);
}

TEST_F(CheckpointUploading, KeepsWhatTheRetentionKeeps) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  for (const int step : {100, 200, 300}) run.save(step);
  EXPECT_THAT(names(store_), ElementsAre("step-00000200/loader.json", "step-00000200/manifest.json",
                                         "step-00000200/model.bin", "step-00000300/loader.json",
                                         "step-00000300/manifest.json", "step-00000300/model.bin", "writer.json"));
}

TEST_F(CheckpointUploading, ContinuesOnAnEmptyMachine) {
  {
    UploadingRun run{store_, root("one"), {"run-1"}};
    for (const int step : {100, 200}) run.save(step);
  }
  const auto found = fetch(store_, root("two"));
  ASSERT_TRUE(found.checkpoint);
  EXPECT_THAT(found.checkpoint->manifest().run_ids, ElementsAre("run-1"));
  UploadingRun run{store_, root("two"), {"run-1", "run-2"}};
  test::CapturedLog log;
  run.save(300);
  EXPECT_THAT(complete(store_), ElementsAre(200, 300));
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST_F(CheckpointUploading, KeepsTheBestOfAllMachines) {
  const CheckpointRetention retention{.last = 1, .metric = "loss"};
  {
    CheckpointWriter writer{root("one"), {"run-1"}, retention};
    CheckpointUploader uploader{store_, root("one"), {"run-1"}, retention};
    for (const auto& [step, loss] : {std::pair{100, 0.1}, {200, 0.5}, {300, 0.6}}) {
      test::save(writer, step, {{"loss", loss}});
      uploader.start(step);
      uploader.finish();
    }
  }
  ASSERT_TRUE(fetch(store_, root("two")).checkpoint);
  CheckpointWriter writer{root("two"), {"run-1", "run-2"}, retention};
  CheckpointUploader uploader{store_, root("two"), {"run-1", "run-2"}, retention};
  test::save(writer, 400, {{"loss", 0.3}});
  uploader.start(400);
  uploader.wait();
  EXPECT_THAT(complete(store_), ElementsAre(100, 400));
}

TEST_F(CheckpointUploading, ContinuesWithAnOlderOneToo) {
  {
    UploadingRun run{store_, root("one"), {"run-1"}};
    for (const int step : {100, 200}) run.save(step);
  }
  CheckpointWriter writer{root("two"), {"run-2"}};
  EXPECT_FALSE(fetch_checkpoint(store_, 300, writer));
  for (const int step : {200, 100}) EXPECT_TRUE(fetch_checkpoint(store_, step, writer));
  for (const int step : {200, 100}) CheckpointFolder{root("two") / checkpoint_folder_name(step)}.verify();
}

TEST_F(CheckpointUploading, TouchesNothingElse) {
  {
    UploadingRun run{store_, root("one"), {"other run"}};
    run.save(100);
  }
  store_.objects["notes.txt"] = "mine";
  store_.objects["step-100/x"] = "mine";
  store_.objects["step-00000200/sub/x"] = "mine";
  UploadingRun run{store_, root("two"), {"run-1"}, 1};
  store_.objects.erase("step-00000200/sub/x");
  test::CapturedLog log;
  run.save(200);
  store_.objects["step-00000200/sub/x"] = "mine";
  run.save(300);
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("(run other run"), HasSubstr("az://data/run7")),
                                       AllOf(HasSubstr("step-00000200' is kept"), HasSubstr("'sub/x' was added"))));
  EXPECT_THAT(complete(store_), ElementsAre(100, 200, 300));
  EXPECT_EQ(store_.objects.at("notes.txt"), "mine");
  EXPECT_EQ(store_.objects.at("step-100/x"), "mine");
}

// Whatever the store does at one call, a checkpoint is complete or absent, what was uploaded is there until it may go,
// and the next upload makes up for what is missing and leaves nothing behind.
TEST_F(CheckpointUploading, IsCompleteOrAbsentWhicheverCallFails) {
  const test::SilentLog silent;
  const auto count = [&] {
    MemoryObjectStore store;
    UploadingRun run{store, root("counted"), {"run-1"}};
    for (const int step : {100, 200, 300}) run.save(step);
    EXPECT_THAT(complete(store), ElementsAre(200, 300));
    return store.calls;
  }();
  EXPECT_GT(count, 25);
  using enum StoreFault;
  for (const auto fault : {refuse, empty, torn, answered, dead}) {
    for (int at = 1; at <= count + 1; ++at) {
      SCOPED_TRACE(text("fault ", static_cast<int>(fault), " at call ", at));
      MemoryObjectStore store;
      store.fault = fault;
      store.fails_at = at;
      const auto first = root(text("first-", static_cast<int>(fault), '-', at));
      {
        UploadingRun run{store, first, {"run-1"}};
        std::vector<std::int64_t> safe;  // must be in the store
        for (const int step : {100, 200, 300}) {
          store.is_disturbed = true;
          run.save(step);
          try {
            run.uploader.report(0);
            safe = step == 100 ? std::vector<std::int64_t>{100} : std::vector<std::int64_t>{step - 100, step};
          } catch (const EnvironmentError& error) {
            EXPECT_THAT(error.what(), HasSubstr("does not answer"));
          }
          store.is_disturbed = false;
          EXPECT_THAT(undamaged(store), IsSupersetOf(safe));
          EXPECT_GE(newest_for_others(store), safe.empty() ? -1 : safe.back());
        }
      }
      // On the same machine, or on one without checkpoints.
      const auto second = at % 2 == 0 ? first : root(text("second-", static_cast<int>(fault), '-', at));
      const auto newest = fetch(store, second).checkpoint;
      UploadingRun run{store, second, {"run-1", "run-2"}};
      run.save(400);
      run.uploader.wait();
      std::vector<std::int64_t> expected{400};
      if (newest) expected.insert(expected.begin(), newest->manifest().step);
      EXPECT_THAT(undamaged(store), IsSupersetOf(expected));
      if (fault == torn) continue;  // a damaged manifest is not removed
      EXPECT_THAT(names(store), SizeIs(1 + 3 * complete(store).size()));
      EXPECT_THAT(complete(store), SizeIs(newest ? 2 : 1));
    }
  }
}

TEST_F(CheckpointUploading, ReadsWhatTheRetentionRemovesMeanwhile) {
  UploadingRun run{store_, root("one"), {"run-1"}, 1};
  std::latch is_sending{1};
  std::latch is_removed{1};
  store_.before_put = [&](const std::string& name) {
    if (name != "step-00000100/model.bin") return;
    is_sending.count_down();
    is_removed.wait();
  };
  test::save(run.writer, 100);
  run.uploader.start(100);
  is_sending.wait();
  for (const int step : {200, 300}) {
    test::save(run.writer, step);
    run.uploader.start(step);
  }
  EXPECT_FALSE(fs::exists(root("one") / "step-00000100"));
  is_removed.count_down();
  run.uploader.finish();
  EXPECT_THAT(complete(store_), ElementsAre(100));
  run.uploader.wait();
  EXPECT_THAT(complete(store_), ElementsAre(300));
}

TEST_F(CheckpointUploading, UploadsWhatIsMissingWhenTheStoreIsBack) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  run.save(100);
  store_.fault = StoreFault::dead;
  store_.fails_at = store_.calls + 1;
  test::CapturedLog log;
  run.save(200);
  run.uploader.report(1);
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("the training goes on"), HasSubstr("does not answer"))));
  run.save(300);
  EXPECT_THAT(message_of<EnvironmentError>([&] { run.uploader.report(1); }), HasSubstr("does not answer"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { run.uploader.wait(); }), HasSubstr("does not answer"));
  store_.fails_at = 0;
  run.uploader.wait();
  EXPECT_THAT(complete(store_), ElementsAre(200, 300));
  EXPECT_THAT(log.lines(), SizeIs(1));
}

TEST_F(CheckpointUploading, EndsWhenALaterRunHasTakenOver) {
  UploadingRun first{store_, root("one"), {"run-1"}};
  first.save(100);
  test::CapturedLog log;
  UploadingRun second{store_, root("two"), {"run-2"}};
  second.save(50);
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("(run run-1"), HasSubstr("If it is still running"))));
  first.save(200);
  EXPECT_THAT(message_of<EnvironmentError>([&] { first.uploader.report(0); }),
              AllOf(HasSubstr("(run run-2"), HasSubstr("has begun to write checkpoints to 'az://data/run7'")));
  EXPECT_THAT(complete(store_), ElementsAre(50, 100));
}

TEST_F(CheckpointUploading, NoticesALaterRunBeforeTheManifest) {
  UploadingRun first{store_, root("one"), {"run-1"}};
  store_.before_put = [&](const std::string& name) {
    if (name == "step-00000100/loader.json") store_.objects["writer.json"] = "of another run";
  };
  first.save(100);
  EXPECT_THAT(message_of<EnvironmentError>([&] { first.uploader.report(0); }), HasSubstr("Another run has begun"));
  EXPECT_THAT(names(store_), Not(Contains("step-00000100/manifest.json")));
}

TEST_F(CheckpointUploading, NeverReplacesAnUndamagedOne) {
  {
    UploadingRun run{store_, root("one"), {"run-1"}};
    run.save(100);
  }
  const auto before = store_.objects;
  const test::SilentLog silent;
  UploadingRun run{store_, root("two"), {"run-2"}};
  run.save(100, {{"loss", 0.5}});
  EXPECT_THAT(message_of<EnvironmentError>([&] { run.uploader.report(0); }),
              HasSubstr("has another checkpoint 'step-00000100' already, which is undamaged"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { run.uploader.wait(); }), HasSubstr("already"));
  for (const auto& [name, bytes] : before) {
    if (name == "writer.json") continue;
    EXPECT_EQ(store_.objects.at(name), bytes) << name;
  }
  run.save(200);  // the run goes on
  run.uploader.report(0);
  EXPECT_THAT(complete(store_), ElementsAre(100, 200));
}

TEST_F(CheckpointUploading, ReplacesADamagedOne) {
  {
    UploadingRun run{store_, root("one"), {"run-1"}};
    for (const int step : {100, 200}) run.save(step);
  }
  store_.objects.at("step-00000200/model.bin").back() ^= 1;
  const auto found = fetch(store_, root("two"));
  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->manifest().step, 100);
  EXPECT_THAT(found.passed_over, ElementsAre(HasSubstr("'az://data/run7/step-00000200/model.bin' is damaged")));
  test::CapturedLog log;
  UploadingRun run{store_, root("two"), {"run-1", "run-2"}};
  run.save(200);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("A new checkpoint replaces a damaged one")));
  EXPECT_THAT(complete(store_), ElementsAre(100, 200));
}

TEST_F(CheckpointUploading, DoesNotUploadDamage) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  test::save(run.writer, 100);
  {
    std::fstream file{root("one") / "step-00000100/model.bin", std::ios::in | std::ios::out};
    file.put('x');
  }
  run.uploader.start(100);
  EXPECT_THAT(message_of<EnvironmentError>([&] { run.uploader.wait(); }), HasSubstr("model.bin' is damaged"));
  EXPECT_THAT(complete(store_), IsEmpty());
  test::CapturedLog log;
  run.save(200);
  run.uploader.wait();
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("A checkpoint is not uploaded: ")));
  EXPECT_THAT(complete(store_), ElementsAre(200));
}

// As on a network file system that fails for a while.
TEST_F(CheckpointUploading, WaitsInVainForACheckpointThatCannotBeRead) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  test::save(run.writer, 100);
  const auto manifest = root("one") / "step-00000100" / kManifestName;
  fs::rename(manifest, root("one") / "aside");
  fs::create_directory(manifest);
  run.uploader.start(100);
  EXPECT_THAT(message_of<EnvironmentError>([&] { run.uploader.wait(); }), HasSubstr("step-00000100"));
  fs::remove(manifest);
  fs::rename(root("one") / "aside", manifest);
  run.uploader.wait();
  EXPECT_THAT(complete(store_), ElementsAre(100));
}

TEST_F(CheckpointUploading, TellsOfAnOlderCheckpointThatCannotBeRead) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  test::save(run.writer, 100);
  const auto manifest = root("one") / "step-00000100" / kManifestName;
  fs::rename(manifest, root("one") / "aside");
  fs::create_directory(manifest);
  test::CapturedLog log;
  run.save(200);
  run.uploader.wait();
  EXPECT_THAT(complete(store_), ElementsAre(200));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("step-00000100")));
  const auto calls = store_.calls;
  run.uploader.wait();
  EXPECT_EQ(store_.calls, calls);  // it has nothing to send
  fs::remove(manifest);
  fs::rename(root("one") / "aside", manifest);
  run.uploader.wait();
  EXPECT_THAT(complete(store_), ElementsAre(100, 200));
}

TEST_F(CheckpointUploading, PassesOverDamageOfEveryKind) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  for (const int step : {100, 200}) run.save(step);
  const auto intact = store_.objects;
  for (const auto& [name, bytes] : intact) {
    if (!name.starts_with("step-00000200/")) continue;
    for (std::size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 40) {
      store_.objects = intact;
      store_.objects[name][at] ^= 4;
      EXPECT_EQ(newest_for_others(store_), 100) << name << " byte " << at;
      store_.objects[name] = bytes.substr(0, at);
      EXPECT_EQ(newest_for_others(store_), 100) << name << " cut at " << at;
    }
    store_.objects = intact;
    store_.objects.erase(name);
    EXPECT_EQ(newest_for_others(store_), 100) << name;
  }
}

TEST_F(CheckpointUploading, TheNewestOfRootAndStoreIsTaken) {
  const test::SilentLog silent;
  {
    UploadingRun run{store_, root("one"), {"run-1"}};
    run.save(200);
    test::save(run.writer, 300);
  }
  const auto calls = store_.calls;
  EXPECT_EQ(fetch(store_, root("one")).checkpoint->manifest().step, 300);
  EXPECT_EQ(store_.calls, calls + 1);  // the listing
  std::ofstream{root("one") / "step-00000300/model.bin"} << "damaged";
  std::ofstream{root("one") / "step-00000200/model.bin"} << "damaged";
  const auto found = fetch(store_, root("one"));
  EXPECT_EQ(found.checkpoint->manifest().step, 200);
  EXPECT_THAT(found.passed_over, SizeIs(2));
  found.checkpoint->verify();
}

TEST_F(CheckpointUploading, AStoreThatCannotBeReadIsAnError) {
  {
    UploadingRun run{store_, root("one"), {"run-1"}};
    for (const int step : {100, 200}) run.save(step);
  }
  store_.fault = StoreFault::refuse;
  for (int at = 1; at <= 4; ++at) {
    store_.fails_at = store_.calls + at;
    const auto other = root(text("other machine-", at));
    EXPECT_THAT(message_of<EnvironmentError>([&] { fetch(store_, other); }), HasSubstr("does not answer"));
    EXPECT_THAT(list_checkpoints(other), IsEmpty());
  }
  EXPECT_EQ(newest_for_others(store_), 200);
}

TEST_F(CheckpointUploading, ACheckpointOfANewerLibtrainIsAnError) {
  UploadingRun run{store_, root("one"), {"run-1"}};
  run.save(100);
  auto manifest = store_.objects.at("step-00000100/manifest.json");
  manifest.replace(manifest.find("\"version\": 1"), 12, "\"version\": 2");
  store_.objects.at("step-00000100/manifest.json") = test::with_right_checksum(manifest);
  EXPECT_THAT(message_of<CheckpointVersionError>([&] { fetch(store_, root("two")); }), HasSubstr("version 2"));
  run.save(200);
  run.uploader.report(0);
  EXPECT_TRUE(store_.objects.contains("step-00000100/manifest.json"));
}

}  // namespace
}  // namespace libtrain::detail
