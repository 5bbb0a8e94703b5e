#include <libtrain/data/storage/detail/local_storage.hpp>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/file_clock.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::pass_time_of;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

class LocalStorageTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    write_file((root_ / path).string(), content);
  }

  detail::LocalStorage storage() const { return detail::LocalStorage{root_.string()}; }

  std::vector<std::string> listed(const std::string& folder) const {
    std::vector<std::string> paths;
    for (const auto& info : storage().list(folder)) paths.push_back(info.path);
    return paths;
  }

  FileKind kind_of(const std::string& path) const {
    for (const auto& info : storage().list("")) {
      if (info.path == path) return info.kind;
    }
    throw std::out_of_range(path);
  }

  std::string open_message(const std::string& path) const {
    return message_of<EnvironmentError>([&] { storage().open(path); });
  }

  const TemporaryFolder folder_;
  const std::filesystem::path root_ = folder_.path();
};

std::string read(const File& file, std::uint64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  file.read_at(offset, std::as_writable_bytes(std::span{bytes}));
  return bytes;
}

TEST_F(LocalStorageTest, ReadsAnyRangeOfAFile) {
  write("a/b.bin", "0123456789");
  const auto file = storage().open("a/b.bin");
  EXPECT_EQ(file->name(), (root_ / "a/b.bin").string());
  EXPECT_EQ(file->size(), 10U);
  EXPECT_EQ(read(*file, 0, 10), "0123456789");
  EXPECT_EQ(read(*file, 3, 4), "3456");
  EXPECT_EQ(read(*file, 9, 1), "9");
  EXPECT_EQ(read(*file, 10, 0), "");
}

TEST_F(LocalStorageTest, RefusesRangesBeyondTheEnd) {
  write("x", "0123456789");
  const auto file = storage().open("x");
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(*file, 8, 5); }),
              AllOf(HasSubstr((root_ / "x").string()), HasSubstr("byte offset 8"), HasSubstr("expected 5 more bytes"),
                    HasSubstr("found 2")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(*file, 11, 0); }), HasSubstr("byte offset 11"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(*file, ~std::uint64_t{0}, 2); }), HasSubstr("found 0"));
}

TEST_F(LocalStorageTest, ReadsFromSeveralThreadsAtOnce) {
  std::string content(100'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 256);
  write("x", content);
  const auto file = storage().open("x");
  std::vector<std::string> found(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < found.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t offset = 0; offset < content.size(); offset += 1000) found[t] += read(*file, offset, 1000);
      });
    }
  }
  for (const auto& bytes : found) EXPECT_EQ(bytes, content);
}

TEST_F(LocalStorageTest, ReadsWholeFilesUpToALimit) {
  write("x", "0123456789");
  write("empty", "");
  EXPECT_EQ(read_all(*storage().open("x"), 10), "0123456789");
  EXPECT_EQ(read_all(*storage().open("empty"), 0), "");
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_all(*storage().open("x"), 9); }),
              AllOf(HasSubstr("x'"), HasSubstr("at most 9 bytes"), HasSubstr("found 10")));
}

TEST_F(LocalStorageTest, NoticesAFileThatWasCut) {
  write("x", "0123456789");
  const auto file = storage().open("x");
  std::filesystem::resize_file(root_ / "x", 4);
  EXPECT_EQ(read(*file, 0, 4), "0123");
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(*file, 2, 8); }),
              AllOf(HasSubstr("byte offset 4"), HasSubstr("expected 6 more bytes"), HasSubstr("changed since"),
                    HasSubstr("had 10 bytes and has 4")));
}

TEST_F(LocalStorageTest, KeepsReadingADeletedFileAsItWas) {
  write("x", "0123456789");
  const auto file = storage().open("x");
  std::filesystem::remove(root_ / "x");
  write("x", "another");
  EXPECT_EQ(read(*file, 0, 10), "0123456789");
}

TEST_F(LocalStorageTest, TellsSizeAndVersion) {
  write("a/x", "0123");
  const auto first = storage().info("a/x");
  EXPECT_EQ(first.path, "a/x");
  EXPECT_EQ(first.size, 4U);
  EXPECT_EQ(storage().info("a/x").version, first.version);
  ASSERT_EQ(storage().list("").size(), 1U);
  EXPECT_EQ(storage().list("")[0].version, first.version);
  // The same length and the same time of modification, but another file.
  const auto time = std::filesystem::last_write_time(root_ / "a/x");
  write("a/y", "4567");
  std::filesystem::last_write_time(root_ / "a/y", time);
  std::filesystem::rename(root_ / "a/y", root_ / "a/x");
  EXPECT_NE(storage().info("a/x").version, first.version);
}

TEST_F(LocalStorageTest, SeesANewVersionWhereSizeTimeAndInodeAreTheSame) {
  write("x", "0123");
  const auto first = storage().info("x").version;
  const auto time = std::filesystem::last_write_time(root_ / "x");
  pass_time_of((root_ / "x").string());
  write("x", "4567");
  std::filesystem::last_write_time(root_ / "x", time);
  EXPECT_NE(storage().info("x").version, first);
}

TEST_F(LocalStorageTest, IsTheSameByWhateverPathAndAnotherInEachWorkingDirectory) {
  write("a/data/x", "a");
  write("b/data/x", "b");
  std::filesystem::create_directory_symlink(root_ / "a/data", root_ / "link");
  const auto canonical = std::filesystem::canonical(root_).string();
  EXPECT_EQ(detail::LocalStorage((root_ / "a/data").string()).identity(), canonical + "/a/data");
  EXPECT_EQ(detail::LocalStorage((root_ / "b/../a/data/").string()).identity(), canonical + "/a/data");
  EXPECT_EQ(detail::LocalStorage((root_ / "link").string()).identity(), canonical + "/a/data");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(root_ / "b");
  const detail::LocalStorage relative("data");
  std::filesystem::current_path(before);
  EXPECT_EQ(relative.identity(), canonical + "/b/data");
  EXPECT_EQ(relative.name(), "data") << "messages name it as the user does";
}

TEST_F(LocalStorageTest, SeesANewVersionWhereOnlyTheTimeIsAnother) {
  write("x", "0123");
  const auto first = storage().info("x").version;
  const auto time = std::filesystem::last_write_time(root_ / "x");
  std::filesystem::last_write_time(root_ / "x", time + std::chrono::nanoseconds{1000});
  EXPECT_NE(storage().info("x").version, first);
}

TEST_F(LocalStorageTest, ListsFilesAtAnyDepthSortedAsBytes) {
  for (const std::string path : {"b/2", "b/10", "a.txt", "a/z/deep", "Z", "a-b/x", "\xc3\xa9"}) write(path, path);
  std::filesystem::create_directories(root_ / "empty");
  EXPECT_THAT(listed(""), ElementsAre("Z", "a-b/x", "a.txt", "a/z/deep", "b/10", "b/2", "empty/", "\xc3\xa9"));
  EXPECT_THAT(listed("b"), ElementsAre("b/10", "b/2"));
  EXPECT_THAT(listed("a/z"), ElementsAre("a/z/deep"));
  EXPECT_THAT(listed("empty"), ElementsAre());
  EXPECT_EQ(storage().list("a")[0].size, 8U);
  EXPECT_EQ(kind_of("a.txt"), FileKind::file);
  EXPECT_EQ(kind_of("empty/"), FileKind::empty_folder);
  EXPECT_THAT(storage().folders(""), Optional(ElementsAre("a", "a-b", "b", "empty")));
  EXPECT_THAT(storage().folders("a"), Optional(ElementsAre("z")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { storage().folders("none"); }), HasSubstr("No such file"));
}

TEST_F(LocalStorageTest, LeavesOutWhatAFileSystemHasAtItsRoot) {
  write("a/x", "x");
  write("a/lost+found/y", "y");
  write("b/lost+found", "a file");
  const auto own = root_ / "lost+found";
  std::filesystem::create_directories(own);
  std::filesystem::permissions(own, std::filesystem::perms::none);
  EXPECT_THAT(storage().folders(""), Optional(ElementsAre("a", "b")));
  EXPECT_THAT(listed(""), ElementsAre("a/lost+found/y", "a/x", "b/lost+found"));
  EXPECT_THAT(listed("a"), ElementsAre("a/x"));
  EXPECT_THAT(listed("b"), ElementsAre("b/lost+found"));
  std::filesystem::permissions(own, std::filesystem::perms::owner_all);
}

TEST_F(LocalStorageTest, FollowsLinksWithoutGoingInCircles) {
  write("data/x", "x");
  write("outside/y", "yy");
  const auto data = root_ / "data";
  std::filesystem::create_symlink(root_ / "outside", data / "folder");
  std::filesystem::create_symlink(root_ / "outside/y", data / "link");
  std::filesystem::create_symlink("..", data / "up");
  std::filesystem::create_symlink(".", data / "here");
  std::filesystem::create_symlink("self", data / "self");
  std::filesystem::create_symlink("nowhere", data / "dangling");
  std::filesystem::create_symlink(data, root_ / "outside/back");
  EXPECT_EQ(detail::LocalStorage{data.string()}.list("").size(), listed("data").size());
  // From "up" everything is seen once more; the folders that lie above count as empty.
  EXPECT_THAT(listed("data"),
              ElementsAre("data/dangling", "data/folder/back/", "data/folder/y", "data/here/", "data/link", "data/self",
                          "data/up/data/", "data/up/outside/back/", "data/up/outside/y", "data/x"));
  EXPECT_EQ(kind_of("data/dangling"), FileKind::unreadable);
  EXPECT_EQ(kind_of("data/self"), FileKind::unreadable);
  EXPECT_EQ(storage().info("data/link").size, 2U);
  EXPECT_EQ(read(*storage().open("data/folder/y"), 0, 2), "yy");
}

TEST_F(LocalStorageTest, ListsWhatIsNoFileAsUnreadable) {
  write("x", "x");
  ASSERT_EQ(mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(listed(""), ElementsAre("fifo", "x"));
  EXPECT_EQ(kind_of("fifo"), FileKind::unreadable);
  EXPECT_THAT(open_message("fifo"), HasSubstr("regular file"));
}

TEST_F(LocalStorageTest, NamesWhatIsMissingOrOfTheWrongKind) {
  write("a/x", "x");
  EXPECT_THAT(open_message("a/y"), AllOf(HasSubstr((root_ / "a/y").string()), HasSubstr("No such file")));
  EXPECT_THAT(open_message("a"), AllOf(HasSubstr("regular file"), HasSubstr("a folder")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { storage().info("a/y"); }), HasSubstr("No such file"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { storage().info("a"); }), HasSubstr("a folder"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { listed("b"); }),
              AllOf(HasSubstr((root_ / "b").string()), HasSubstr("No such file")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { listed("a/x"); }), HasSubstr("Not a directory"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { detail::LocalStorage{(root_ / "none").string()}; }),
              HasSubstr("No such file"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { detail::LocalStorage{(root_ / "a/x").string()}; }),
              AllOf(HasSubstr("folder"), HasSubstr("a file")));
}

// While it lives, this process may open no file.
class NoFiles {
 public:
  NoFiles() {
    getrlimit(RLIMIT_NOFILE, &former_);
    const rlimit none{.rlim_cur = 0, .rlim_max = former_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoFiles(const NoFiles&) = delete;  // sets the limit back
  NoFiles& operator=(const NoFiles&) = delete;
  ~NoFiles() { setrlimit(RLIMIT_NOFILE, &former_); }

 private:
  rlimit former_{};
};

TEST_F(LocalStorageTest, BlamesNoFileThatTheProcessMayNotOpenForWantOfDescriptors) {
  write("x", "x");
  const detail::LocalStorage local = storage();
  std::string file;
  std::string folder;
  {
    const NoFiles none;
    file = message_of<StorageUnavailable>([&] { local.open("x"); });
    folder = message_of<StorageUnavailable>([&] { local.list(""); });
  }
  EXPECT_THAT(file, AllOf(HasSubstr((root_ / "x").string()), HasSubstr("byte offset 0"), HasSubstr("ulimit -n")));
  EXPECT_THAT(folder, AllOf(HasSubstr(root_.string()), HasSubstr("ulimit -n")));
  EXPECT_EQ(read(*local.open("x"), 0, 1), "x");
}

TEST_F(LocalStorageTest, RefusesPathsThatLeadOutOfItsRoot) {
  write("x", "x");
  const std::vector<std::string> paths{"",    "/x",   "../x", "a/../x", "..",
                                       "./x", "a//x", "a/",   "a/..",   std::string{"x\0y", 3}};
  for (const auto& path : paths) {
    EXPECT_THAT(open_message(path), HasSubstr("none of them empty, '.' or '..'")) << path;
    EXPECT_THAT(message_of<EnvironmentError>([&] { storage().info(path); }), HasSubstr("none of them empty")) << path;
  }
  EXPECT_THAT(message_of<EnvironmentError>([&] { listed("../"); }), HasSubstr("none of them empty"));
  write("..x", "dots in names are fine");
  EXPECT_EQ(storage().open("..x")->size(), 22U);
}

TEST_F(LocalStorageTest, EndsWithAnErrorWhereFoldersAreNestedTooDeep) {
  std::string path;
  for (int i = 0; i < 210; ++i) path += "d/";
  write(path + "x", "x");
  EXPECT_THAT(message_of<EnvironmentError>([&] { listed(""); }), HasSubstr("more than 200 folders"));
}

}  // namespace
}  // namespace libtrain::data
