#include <tools/pack/output_folder.hpp>

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/sources/open_image_source.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/staging_fixture.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::pack {
namespace {

namespace fs = std::filesystem;
using test::CapturedLog;
using test::Child;
using test::Contents;
using test::contents_of;
using test::message_of;
using test::SilentLog;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kKilled = 9;

// Two sets that share names of files, and a file that belongs to neither.
const Contents kOld{
    {"classes.txt", "old names"}, {"x-0.tar", "old 0"}, {"x-1.tar", "old 1"}, {"x-2.tar", "old 2"}, {"notes", "keep"}};
const Contents kNew{
    {"classes.txt", "new names"}, {"x-0.tar", "new 0"}, {"x-1.tar", "new 1"}, {"y-0.tar", "new y"}, {"notes", "keep"}};

bool is_shard(const std::string& name) {
  return name.ends_with(".tar");
}

class OutputFolderTest : public ::testing::Test {
 protected:
  OutputFolderTest() {
    for (const auto& [name, content] : kOld) write_file(folder_ / name, content);
  }

  // Puts the new set in the place of the old one.
  void replace(const Rename& rename = rename_file) const {
    OutputFolder output(folder_.path(), NotEmpty::add_to, rename);
    for (const auto& [name, content] : kNew) {
      if (name != "notes") write_file(output.add(name), content);
    }
    output.publish(is_shard);
  }

  // Ends a process that does so in the place of its n-th renaming; false where it has no such.
  bool kill_at(int number) const {
    Child child([&] {
      replace([&, count = 0](const fs::path& from, const fs::path& to) mutable {
        if (++count == number) _exit(kKilled);
        rename_file(from, to);
      });
    });
    return child.wait() == kKilled;
  }

  // Whether a reader takes what is there for a set.
  bool is_taken_as_whole() const {
    try {
      data::detail::list_shards(data::detail::LocalStorage(folder_.path().string()), "", "",
                                data::detail::ShardKind::tar);
      return true;
    } catch (const EnvironmentError& error) {
      EXPECT_THAT(error.what(), HasSubstr("libtrain-pack is replacing the shards of this folder"));
      return false;
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(OutputFolderTest, PutsOneSetInThePlaceOfAnother) {
  replace();
  EXPECT_EQ(contents_of(folder_.path()), kNew);
  EXPECT_TRUE(is_taken_as_whole());
}

TEST_F(OutputFolderTest, AProcessThatIsKilledAnywhereLeavesNoMixture) {
  int kills = 0;
  while (kill_at(kills + 1)) {
    ++kills;
    EXPECT_FALSE(is_taken_as_whole()) << kills;
    CapturedLog log;
    {
      const OutputFolder next(folder_.path(), NotEmpty::add_to);
    }
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("The previous files have been restored")));
    EXPECT_EQ(contents_of(folder_.path()), kOld) << kills;
    EXPECT_TRUE(is_taken_as_whole()) << kills;
  }
  EXPECT_EQ(kills, 8) << "four files go and four come";
  EXPECT_EQ(contents_of(folder_.path()), kNew);
}

TEST_F(OutputFolderTest, AnErrorAnywhereLeavesTheFormerSet) {
  for (int number = 1; number <= 8; ++number) {
    int count = 0;
    const auto failing = [&](const fs::path& from, const fs::path& to) {
      if (++count == number) throw EnvironmentError("no more names");
      rename_file(from, to);
    };
    EXPECT_EQ(message_of<EnvironmentError>([&] { replace(failing); }), "no more names");
    EXPECT_EQ(contents_of(folder_.path()), kOld) << number;
  }
}

TEST_F(OutputFolderTest, WhatCannotBePutBackIsKeptForTheNextProcess) {
  const auto failing = [count = 0](const fs::path& from, const fs::path& to) mutable {
    if (++count >= 3) throw EnvironmentError("no more names");
    rename_file(from, to);
  };
  EXPECT_EQ(message_of<EnvironmentError>([&] { replace(failing); }), "no more names");
  EXPECT_FALSE(is_taken_as_whole());
  const auto refused = [](const fs::path&, const fs::path&) { throw EnvironmentError("still no names"); };
  EXPECT_EQ(message_of<EnvironmentError>([&] { OutputFolder(folder_.path(), NotEmpty::refuse, refused); }),
            "still no names");
  SilentLog silent;
  EXPECT_THAT(message_of<UsageError>([&] { OutputFolder(folder_.path(), NotEmpty::refuse); }),
              HasSubstr("is not empty"));
  EXPECT_EQ(contents_of(folder_.path()), kOld);
}

// No shard lies in the folder, which may then pass for one of images.
TEST_F(OutputFolderTest, AFolderWhoseFormerFilesAreAllSetAsideIsNotRead) {
  const auto failing = [count = 0](const fs::path& from, const fs::path& to) mutable {
    if (++count >= 5) throw EnvironmentError("no more names");
    rename_file(from, to);
  };
  EXPECT_EQ(message_of<EnvironmentError>([&] { replace(failing); }), "no more names");
  EXPECT_THAT(message_of<EnvironmentError>([&] {
                data::open_image_source(std::make_shared<data::detail::LocalStorage>(folder_.path().string()));
              }),
              HasSubstr("run it again on this folder"));
}

TEST_F(OutputFolderTest, AFolderThatHasAnewNameIsNoFileToReplace) {
  fs::create_directories(folder_ / "y-0.tar/inside");
  EXPECT_THAT(message_of<EnvironmentError>([&] { replace(); }), AllOf(HasSubstr("y-0.tar"), HasSubstr("directory")));
  EXPECT_EQ(contents_of(folder_.path()), kOld);
}

}  // namespace
}  // namespace libtrain::pack
