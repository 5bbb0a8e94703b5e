// Checkpoints that were damaged after they were complete: each is recognised and named, and the one before it is found.

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>

#include <tests/checkpoint/checkpoints.hpp>
#include <tests/checkpoint/manifest_seal.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::read_file;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointDamage : public ::testing::Test {
 protected:
  CheckpointDamage() {
    CheckpointWriter writer{root_, {"run"}};
    test::save(writer, 1);
    newest_ = test::save(writer, 2);
  }

  // That the damage is seen, and step 1 found instead; what is said about step 2.
  std::string require_damage() const {
    const auto found = find_newest_checkpoint(root_);
    EXPECT_TRUE(found.checkpoint.has_value());
    if (found.checkpoint) {
      EXPECT_EQ(found.checkpoint->manifest().step, 1);
      EXPECT_EQ(found.checkpoint->read("model.bin"), test::checkpoint_bytes(1, "model.bin", test::kModelBytes));
    }
    EXPECT_EQ(found.passed_over.size(), 1u);
    const auto message = found.passed_over.empty() ? "" : found.passed_over[0];
    EXPECT_THAT(message, HasSubstr((root_ / "step-00000002").string()));
    return message;
  }

  test::TemporaryFolder folder_;
  fs::path root_ = folder_.path() / "checkpoints";
  fs::path newest_ = {};
};

TEST_F(CheckpointDamage, NoneIsSeenWhereNoneIs) {
  const auto found = find_newest_checkpoint(root_);
  ASSERT_TRUE(found.checkpoint.has_value());
  EXPECT_EQ(found.checkpoint->path(), newest_);
  EXPECT_THAT(found.passed_over, ::testing::IsEmpty());
}

TEST_F(CheckpointDamage, EachByteThatChangesIsSeen) {
  for (const auto* name : {"model.bin", "manifest.json"}) {
    const auto whole = read_file(newest_ / name);
    for (std::size_t i = 0; i < whole.size(); i += 7) {
      SCOPED_TRACE(testing::Message() << name << " byte " << i);
      auto bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ 1 << i % 8);
      write_file(newest_ / name, bytes);
      require_damage();
    }
    write_file(newest_ / name, whole);
  }
}

TEST_F(CheckpointDamage, TheTensorIsNamed) {
  auto bytes = read_file(newest_ / "model.bin");
  bytes[300] = static_cast<char>(~bytes[300]);
  write_file(newest_ / "model.bin", bytes);
  EXPECT_THAT(require_damage(), AllOf(HasSubstr("the 700 bytes from offset 300, tensor 'second', have changed"),
                                      HasSubstr("Use another checkpoint")));
  EXPECT_THAT(message_of<CheckpointDamagedError>([&] { CheckpointFolder{newest_}.read("model.bin"); }),
              HasSubstr("tensor 'second'"));
}

TEST_F(CheckpointDamage, OfOneFileIsNotThatOfAnother) {
  write_file(newest_ / "model.bin", std::string(test::kModelBytes, 'x'));
  const CheckpointFolder checkpoint{newest_};
  checkpoint.verify("loader.json");
  EXPECT_THAT(message_of<CheckpointDamagedError>([&] { checkpoint.verify("model.bin"); }), HasSubstr("model.bin"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { checkpoint.verify("other"); }), HasSubstr("has no file 'other'"));
}

TEST_F(CheckpointDamage, EachLengthIsSeenInTheListToo) {
  for (const auto* name : {"model.bin", "manifest.json"}) {
    const auto whole = read_file(newest_ / name);
    for (std::size_t i = 0; i < 20; ++i) {
      write_file(newest_ / name, whole.substr(0, i * whole.size() / 20));
      SCOPED_TRACE(testing::Message() << name << " of length " << i * whole.size() / 20);
      require_damage();
      const auto list = list_checkpoints(root_);
      ASSERT_EQ(list.size(), 2u);
      EXPECT_TRUE(list[0].is_complete());
      EXPECT_FALSE(list[1].is_complete());
    }
    write_file(newest_ / name, whole + "x");
    require_damage();
    write_file(newest_ / name, whole);
  }
}

TEST_F(CheckpointDamage, AMissingFileIsNamed) {
  for (const auto* name : {"model.bin", "loader.json", "manifest.json"}) {
    fs::rename(newest_ / name, folder_ / "aside");
    EXPECT_THAT(require_damage(), AllOf(HasSubstr(name), HasSubstr("is missing")));
    fs::rename(folder_ / "aside", newest_ / name);
  }
}

TEST_F(CheckpointDamage, AnotherManifestIsSeen) {
  fs::copy_file(root_ / "step-00000001/manifest.json", newest_ / "manifest.json", fs::copy_options::overwrite_existing);
  require_damage();
  fs::remove_all(newest_);
  fs::copy(root_ / "step-00000001", newest_, fs::copy_options::recursive);
  EXPECT_THAT(require_damage(), HasSubstr("is one of step 1"));
}

TEST_F(CheckpointDamage, WhatIsNoFileIsNotOpened) {
  const std::vector<std::function<void(const fs::path&)>> others{
      [](const auto& path) { fs::create_directory(path); },
      [](const auto& path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); },
      [](const auto& path) { fs::create_symlink("/dev/zero", path); },
  };
  for (const auto* name : {"model.bin", "manifest.json"}) {
    fs::rename(newest_ / name, folder_ / "aside");
    for (const auto& make : others) {
      make(newest_ / name);
      EXPECT_THAT(require_damage(), HasSubstr(name));
      fs::remove(newest_ / name);
    }
    fs::rename(folder_ / "aside", newest_ / name);
  }
}

TEST_F(CheckpointDamage, ANewerVersionIsNotPassedOver) {
  auto text = read_file(newest_ / "manifest.json");
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 3");
  write_file(newest_ / "manifest.json", test::with_right_checksum(text));
  EXPECT_THAT(message_of<CheckpointVersionError>([&] { find_newest_checkpoint(root_); }),
              AllOf(HasSubstr("step-00000002/manifest.json' has version 3"), HasSubstr("newer one")));
  EXPECT_THAT(list_checkpoints(root_)[1].problem, HasSubstr("version 3"));
  CheckpointWriter writer{root_, {"run"}};
  EXPECT_THROW(writer.begin(2), CheckpointVersionError);
}

TEST_F(CheckpointDamage, OfAllLeavesNone) {
  for (const auto& status : list_checkpoints(root_)) fs::remove(status.folder / "model.bin");
  const auto found = find_newest_checkpoint(root_);
  EXPECT_FALSE(found.checkpoint.has_value());
  EXPECT_THAT(found.passed_over, ElementsAre(HasSubstr("step-00000002"), HasSubstr("step-00000001")));
}

TEST_F(CheckpointDamage, AFolderWithoutCheckpointsHasNone) {
  EXPECT_FALSE(find_newest_checkpoint(root_ / "none").checkpoint.has_value());
  EXPECT_FALSE(find_best_checkpoint(root_ / "none").has_value());
  EXPECT_THAT(list_checkpoints(folder_.path()), ::testing::IsEmpty());
  EXPECT_THROW(list_checkpoints(newest_ / "model.bin"), EnvironmentError);
}

TEST(CheckpointFolderName, HasTheStepInAtLeastEightDigits) {
  EXPECT_EQ(checkpoint_folder_name(0), "step-00000000");
  EXPECT_EQ(checkpoint_folder_name(1234), "step-00001234");
  EXPECT_EQ(checkpoint_folder_name(1234567890), "step-1234567890");
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{99999999}, INT64_MAX}) {
    EXPECT_EQ(parse_checkpoint_folder_name(checkpoint_folder_name(step)), step);
  }
  for (const auto* name : {"", "step-", "step-1", "step-0000001", "step-000000001", "step--0000001", "step-+0000001",
                           "step-0000000x", "step-00000001 ", "Step-00000001", "step-9223372036854775808"}) {
    EXPECT_EQ(parse_checkpoint_folder_name(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace libtrain
