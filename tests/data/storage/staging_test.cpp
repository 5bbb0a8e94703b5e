#include <libtrain/data/storage/staging.hpp>

#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/disk_file.hpp>

#include <tests/data/storage/staging_fixture.hpp>
#include <tests/support/file_clock.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

namespace fs = std::filesystem;
using test::content_of;
using test::contents_of;
using test::MemoryStorage;
using test::message_of;
using test::read_file;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Staging : public test::StagingFixture {};

TEST_F(Staging, CopiesTheFilesBelowAFolder) {
  put_files(3);
  put("train/class a/1.jpg", content_of(5000, 7));
  put("train/class b/1.jpg", "");
  storage_.put("train.txt", "beside");
  storage_.put("test/0", "another folder");
  const auto result = stage_all();
  EXPECT_EQ(contents_of(result.folder), expected_);
  EXPECT_EQ(result.folder.string(), (target_ / "files").string());
  EXPECT_EQ(result.files, 5u);
  EXPECT_EQ(result.bytes, 3 * 2500u + 5000u);
  EXPECT_EQ(result.copied_files, 5u);
  EXPECT_EQ(result.copied_bytes, result.bytes);
  EXPECT_GT(result.seconds, 0.0);
  EXPECT_TRUE(fs::exists(target_ / "manifest"));
  EXPECT_FALSE(fs::exists(target_ / "journal"));
  EXPECT_FALSE(fs::exists(target_ / "partial"));

  const auto whole = stage(storage_, "", scratch_ / "whole", options());
  EXPECT_EQ(whole.files, 7u);
  EXPECT_EQ(contents_of(whole.folder).at("train/class a/1.jpg"), content_of(5000, 7));
}

// A class without files keeps its place among the classes, or is refused where they are read.
TEST_F(Staging, KeepsEmptyFoldersAsTheStorageHasThem) {
  put_files(1);
  storage_.put("train/b/", "");
  storage_.put("train/c/deep/", "");
  const auto files = stage_all().folder;
  EXPECT_TRUE(fs::is_directory(files / "b"));
  EXPECT_TRUE(fs::is_directory(files / "c/deep"));
  EXPECT_EQ(stage_all().copied_files, 0u);
  fs::remove(files / "b");
  EXPECT_EQ(stage_all().copied_files, 1u);
  EXPECT_TRUE(fs::is_directory(files / "b"));
  storage_.remove("train/b/");
  put("train/c/1.jpg", "c");
  storage_.remove("train/c/deep/");
  stage_all();
  EXPECT_FALSE(fs::exists(files / "b"));
  EXPECT_FALSE(fs::exists(files / "c/deep"));
  EXPECT_EQ(contents_of(files), expected_);
}

// A reader takes it for a bad sample, for a class that is missing, or for nothing of its own.
TEST_F(Staging, KeepsWhatCannotBeReadAsALinkThatLeadsNowhere) {
  const test::TemporaryFolder set;
  const detail::LocalStorage source{set.path()};
  const auto stage_set = [&] {
    const auto result = stage(source, "", target_, options());
    std::string kinds;
    for (const auto& file : detail::LocalStorage{result.folder}.list("")) {
      kinds += file.path + (file.kind == FileKind::unreadable ? " unreadable " : " ");
    }
    return kinds + std::to_string(result.copied_files);
  };
  fs::create_symlink("nowhere", set / "b");
  EXPECT_THAT(message_of<EnvironmentError>(stage_set), HasSubstr("no file to stage"));
  write_file(set / "a", "a");
  ASSERT_EQ(mkfifo((set / "c").c_str(), 0600), 0);
  EXPECT_EQ(stage_set(), "a b unreadable c unreadable 3");
  EXPECT_EQ(stage_set(), "a b unreadable c unreadable 0");
  write_file(set / "nowhere", "found again");
  EXPECT_EQ(stage_set(), "a b c unreadable nowhere 2");
  EXPECT_EQ(read_file((target_ / "files/b").string()), "found again");
  fs::remove(set / "nowhere");
  fs::remove(set / "c");
  EXPECT_EQ(stage_set(), "a b unreadable 1");
}

TEST_F(Staging, ASecondTimeCopiesNothing) {
  put_files(3);
  put("train/50% of\nthe \xc3\xa4pples ", "a name to be escaped", "\"0x8D \xff%\"");
  stage_all();
  const auto read_before = storage_.counts().bytes_read.load();
  const auto result = stage_all();
  EXPECT_EQ(storage_.counts().bytes_read, read_before);
  EXPECT_EQ(result.files, 4u);
  EXPECT_EQ(result.copied_files, 0u);
  EXPECT_EQ(contents_of(result.folder), expected_);
}

TEST_F(Staging, FollowsWhatChangedInTheStorage) {
  put_files(4);
  stage_all();
  put("train/1", content_of(2500, 100), "2");
  put("train/2/inside", "now there is a folder");
  storage_.remove("train/2");
  expected_.erase("2");
  storage_.remove("train/3");
  expected_.erase("3");
  {
    const auto result = stage_all();
    EXPECT_EQ(contents_of(result.folder), expected_);
    EXPECT_EQ(result.files, 3u);
    EXPECT_EQ(result.copied_files, 2u);
  }

  storage_.remove("train/2/inside");
  expected_.erase("2/inside");
  put("train/2", "now it is a file");
  EXPECT_EQ(contents_of(stage_all().folder), expected_);
}

TEST_F(Staging, RemovesWhatTheStorageHasNoMoreAlsoWhereNothingIsToBeCopied) {
  put_files(3);
  stage_all();
  storage_.remove("train/2");
  expected_.erase("2");
  auto greedy = options();
  greedy.free_space_reserve_bytes = std::uint64_t{1} << 60;  // nothing to copy needs no space
  const auto result = stage(storage_, "train", target_, greedy);
  EXPECT_EQ(contents_of(result.folder), expected_);
  EXPECT_EQ(result.files, 2u);
  EXPECT_EQ(result.copied_files, 0u);
}

// The file accesses of this thread, and of those that it starts, as those of a user who is not root: root may remove
// everything.
class WithoutRoot {
 public:
  WithoutRoot() {
    if (geteuid() == 0) setfsuid(kNobody);
  }
  ~WithoutRoot() { setfsuid(geteuid()); }
  WithoutRoot(const WithoutRoot&) = delete;  // one end for one beginning
  WithoutRoot& operator=(const WithoutRoot&) = delete;

 private:
  static constexpr uid_t kNobody = 65'534;
};

// Otherwise it would be read as a part of the set.
TEST_F(Staging, AnEntryOfAnEarlierVersionThatCannotBeRemovedIsAnError) {
  put_files(2);
  storage_.put("train/empty/", "");
  const WithoutRoot user;
  const test::TemporaryFolder own;
  const auto stage_own = [&] { return stage(storage_, "train", own / "set", options()).folder; };
  const auto files = stage_own();
  ASSERT_EQ(chmod(files.c_str(), 0555), 0);
  storage_.remove("train/empty/");
  EXPECT_THAT(message_of<EnvironmentError>(stage_own),
              AllOf(HasSubstr("Cannot remove the folder"), HasSubstr("files/empty': Permission denied")));
  storage_.remove("train/1");
  expected_.erase("1");
  EXPECT_THAT(message_of<EnvironmentError>(stage_own),
              AllOf(HasSubstr("Cannot remove the file"), HasSubstr("files/1': Permission denied")));
  EXPECT_FALSE(fs::exists(own / "set/manifest"));
  ASSERT_EQ(chmod(files.c_str(), 0755), 0);
  EXPECT_EQ(contents_of(stage_own()), expected_);
  EXPECT_FALSE(fs::exists(files / "empty"));
}

// As after the time of day was set back.
TEST_F(Staging, ListsTheFilesEvenWhereTheManifestIsOfTheFuture) {
  put_files(2);
  stage_all();
  const auto manifest = target_ / "manifest";
  fs::last_write_time(manifest, fs::last_write_time(manifest) + std::chrono::hours{1});
  put("train/1", content_of(2500, 100), "2");
  const auto result = stage_all();
  EXPECT_EQ(result.copied_files, 1u);
  EXPECT_EQ(contents_of(result.folder), expected_);
}

TEST_F(Staging, WhatAnotherSourceLeftIsCopiedAnew) {
  put_files(2);
  stage_all();
  MemoryStorage other("memory://other");
  other.put("train/0", content_of(2500, 50));
  other.put("train/1", content_of(2500, 51));
  const auto result = stage(other, "train", target_, options());
  EXPECT_EQ(result.copied_files, 2u);
  EXPECT_EQ(contents_of(result.folder).at("1"), content_of(2500, 51));
}

TEST_F(Staging, WhatAnotherSourceOfTheSameNameLeftIsCopiedAnew) {
  put_files(2);
  stage_all();
  MemoryStorage other("memory://set", "memory://set at another endpoint");
  other.put("train/0", content_of(2500, 50));
  other.put("train/1", content_of(2500, 51));
  const auto result = stage(other, "train", target_, options());
  EXPECT_EQ(result.copied_files, 2u);
  EXPECT_EQ(contents_of(result.folder).at("1"), content_of(2500, 51));
}

// As a tool does that keeps times, or an archive that is unpacked again.
TEST_F(Staging, FollowsALocalFileOfTheSameSizeAndTime) {
  const auto source = scratch_ / "source";
  fs::create_directories(source);
  write_file(source + "/a", "first");
  const auto time = fs::last_write_time(source + "/a");
  const detail::LocalStorage local(source);
  EXPECT_EQ(contents_of(stage(local, "", target_, options()).folder).at("a"), "first");
  test::pass_time_of(source + "/a");
  write_file(source + "/a", "other");
  fs::last_write_time(source + "/a", time);
  EXPECT_EQ(contents_of(stage(local, "", target_, options()).folder).at("a"), "other");
}

TEST_F(Staging, ChangesNothingUnderAnotherReader) {
  put_files(2);
  {
    const auto reader = stage_all();
    const auto before = contents_of(reader.folder);
    EXPECT_EQ(stage_all().copied_files, 0u) << "a second reader is welcome";
    put("train/1", content_of(2500, 100), "2");
    EXPECT_THAT(message_of<EnvironmentError>([&] { stage_all(); }),
                AllOf(HasSubstr("'memory://set/train' differs from the copy"), HasSubstr("another run")));
    EXPECT_EQ(contents_of(reader.folder), before);
    EXPECT_TRUE(fs::exists(target_ / "manifest"));
  }
  EXPECT_EQ(stage_all().copied_files, 1u);
  EXPECT_EQ(contents_of(target_ / "files"), expected_);
}

TEST_F(Staging, TrustsNoLengthsOfFilesThatMayNotHaveReachedTheDisk) {
  put_files(4);
  storage_.fail_after("train/3", 1500);
  auto one_by_one = options();
  one_by_one.threads = 1;
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, one_by_one); }),
              HasSubstr("connection was lost"));
  // What a power failure leaves of a file whose length was written and whose content was not.
  write_file((target_ / "files/1").string(), std::string(2500, '\0'));
  storage_.heal("train/3");
  const auto result = stage_all();
  EXPECT_EQ(contents_of(result.folder), expected_);
  EXPECT_EQ(result.copied_files, 2u) << "those that are whole are not copied again";
}

TEST_F(Staging, WritesAllFilesToTheDiskBeforeThereIsAManifest) {
  put_files(3);
  auto watched = options();
  int calls = 0;
  watched.sync = [&](const detail::DiskFile& on) {
    ++calls;
    EXPECT_EQ(contents_of(target_ / "files"), expected_);
    EXPECT_THAT(read_file((target_ / "journal").string()), HasSubstr("\nend 3 7500 "));
    EXPECT_FALSE(fs::exists(target_ / "manifest"));
    return detail::sync_file_system(on);
  };
  stage(storage_, "train", target_, watched);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(fs::exists(target_ / "manifest"));
}

TEST_F(Staging, ADiskThatCannotKeepTheFilesIsAnError) {
  put_files(3);
  auto failing = options();
  failing.sync = [](const detail::DiskFile&) { return EIO; };
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, failing); }),
              AllOf(HasSubstr("set/journal"), HasSubstr("Input/output error")));
  EXPECT_FALSE(fs::exists(target_ / "manifest"));
  EXPECT_EQ(contents_of(stage_all().folder), expected_);
}

TEST_F(Staging, FindsFilesThatWereDamagedSince) {
  put_files(3);
  const auto folder = stage_all().folder;
  fs::resize_file(folder / "0", 2499);
  fs::remove(folder / "1");
  EXPECT_EQ(stage_all().copied_files, 2u);
  EXPECT_EQ(contents_of(folder), expected_);

  std::fstream(folder / "2", std::ios::in | std::ios::out | std::ios::binary) << "damage";
  EXPECT_EQ(stage_all().copied_files, 0u) << "lengths alone do not tell";
}

TEST_F(Staging, GoesOnWhereAnErrorEndedIt) {
  put_files(5);
  storage_.fail_after("train/3", 1500);
  auto one_by_one = options();
  one_by_one.threads = 1;
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, one_by_one); }),
              AllOf(HasSubstr("memory://set/train/3"), HasSubstr("connection was lost")));
  EXPECT_FALSE(fs::exists(target_ / "manifest"));
  storage_.heal("train/3");
  const auto result = stage_all();
  EXPECT_EQ(result.copied_files, 2u);
  EXPECT_EQ(contents_of(result.folder), expected_);
}

TEST_F(Staging, GoesOnFromAJournalThatIsCutShortAnywhere) {
  put_files(3);
  stage_all();
  const std::string whole = read_file((target_ / "manifest").string());
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    const std::string part = whole.substr(0, length);
    fs::remove(target_ / "manifest");
    write_file((target_ / "journal").string(), part);
    const auto result = stage_all();
    ASSERT_EQ(contents_of(result.folder), expected_) << length;
    ASSERT_TRUE(fs::exists(target_ / "manifest")) << length;
    // Whole lines count: the first is the head, the others name the files that are there.
    const auto lines = static_cast<std::uint64_t>(std::count(part.begin(), part.end(), '\n'));
    ASSERT_EQ(result.copied_files, 4 - std::max<std::uint64_t>(lines, 1)) << length;
  }
}

TEST_F(Staging, ADamagedManifestIsNotTrusted) {
  put_files(2);
  stage_all();
  std::fstream(target_ / "manifest", std::ios::in | std::ios::out | std::ios::binary | std::ios::ate) << "more";
  EXPECT_EQ(stage_all().copied_files, 2u);
}

TEST_F(Staging, TellsHowFarItIs) {
  put_files(3);
  auto told = options();
  StagingProgress last;
  told.progress = [&](const StagingProgress& progress) {
    EXPECT_GE(progress.bytes_done, last.bytes_done);
    EXPECT_GE(progress.files_done, last.files_done);
    last = progress;
  };
  stage(storage_, "train", target_, told);
  EXPECT_EQ(last, (StagingProgress{
                      .files_done = 3, .files_total = 3, .bytes_done = 7500, .bytes_total = 7500, .copier = getpid()}));
}

TEST_F(Staging, AFileThatIsDeletedOrChangedMeanwhileIsAnError) {
  put_files(3);
  storage_.before_read = [&](const std::string& path, std::uint64_t) {
    if (path == "train/0") storage_.put("train/2", content_of(2500, 60), "2");
  };
  auto one_by_one = options();
  one_by_one.threads = 1;
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, one_by_one); }),
              AllOf(HasSubstr("memory://set/train/2"), HasSubstr("changed")));
  EXPECT_FALSE(fs::exists(target_ / "manifest"));
}

TEST_F(Staging, AFileThatChangesAfterItsLastReadIsAnError) {
  put_files(1);
  auto watched = options();
  watched.progress = [&](const StagingProgress& progress) {
    if (progress.bytes_done == 2500 && progress.files_done == 0) storage_.put("train/0", content_of(2500, 60), "2");
  };
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, watched); }),
              AllOf(HasSubstr("memory://set/train/0"), HasSubstr("has changed since it was listed")));
  EXPECT_FALSE(fs::exists(target_ / "manifest"));
}

TEST_F(Staging, RefusesADiskThatIsTooSmallBeforeCopying) {
  put_files(3);
  auto greedy = options();
  greedy.free_space_reserve_bytes = std::uint64_t{1} << 60;
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage_, "train", target_, greedy); }),
              AllOf(HasSubstr("memory://set/train"), HasSubstr("needs 12288 more bytes"),
                    HasSubstr("leave 1152921504606846976")));
  EXPECT_EQ(storage_.counts().bytes_read, 0u);
}

TEST_F(Staging, RefusesPathsThatLeadOutOfTheFolder) {
  for (const char* path : {"train/../outside", "train//double", "train/./dot", "train/a/..", "train/"}) {
    MemoryStorage storage;
    storage.put(path, "bytes");
    EXPECT_THAT(message_of<EnvironmentError>([&] { stage(storage, "train", target_, options()); }), HasSubstr(path));
  }
  EXPECT_FALSE(fs::exists(scratch_ / "outside"));
}

TEST_F(Staging, NamesAPathThatIsAFileAndAFolder) {
  storage_.put("train/a", "file");
  storage_.put("train/a/b", "in a folder");
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage_all(); }), HasSubstr("files/a"));
}

TEST_F(Staging, RefusesAFolderThatHoldsSomethingElse) {
  put_files(1);
  fs::create_directories(target_ / "files");
  std::ofstream(target_ / "files" / "precious") << "of the user";
  EXPECT_THAT(message_of<UsageError>([&] { stage_all(); }), HasSubstr("set' contains files"));
  EXPECT_TRUE(fs::exists(target_ / "files" / "precious"));
  // What file systems themselves make at their root does not count.
  fs::create_directories(scratch_ / "disk/lost+found");
  EXPECT_EQ(stage(storage_, "train", scratch_ / "disk", options()).copied_files, 1u);
}

TEST_F(Staging, RefusesWhatItCannotWorkWith) {
  EXPECT_THAT(message_of<EnvironmentError>([&] { stage_all(); }), HasSubstr("no file to stage"));
  auto wrong = options();
  wrong.threads = 0;
  EXPECT_THAT(message_of<UsageError>([&] { stage(storage_, "", target_, wrong); }), HasSubstr("threads"));
  wrong = options();
  wrong.block_bytes = 0;
  EXPECT_THAT(message_of<UsageError>([&] { stage(storage_, "", target_, wrong); }), HasSubstr("block_bytes"));
  wrong = options();
  wrong.stall_timeout = std::chrono::milliseconds{0};
  EXPECT_THAT(message_of<UsageError>([&] { stage(storage_, "", target_, wrong); }), HasSubstr("stall_timeout"));
  wrong = options();
  wrong.list_timeout = std::chrono::milliseconds{0};
  EXPECT_THAT(message_of<UsageError>([&] { stage(storage_, "", target_, wrong); }), HasSubstr("list_timeout"));
  wrong = options();
  wrong.sync_timeout = std::chrono::milliseconds{0};
  EXPECT_THAT(message_of<UsageError>([&] { stage(storage_, "", target_, wrong); }), HasSubstr("sync_timeout"));
}

}  // namespace
}  // namespace libtrain::data
