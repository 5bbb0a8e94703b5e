#include <libtrain/base/output_file.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::detail {
namespace {

using libtrain::test::Child;
using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

// More than the buffer in memory.
constexpr std::size_t kLong = std::size_t{2} << 20;

TEST(OutputFile, AppearsWholeWhenItIsCommitted) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  OutputFile file(folder / "file");
  file.write("first ");
  file.write(std::string(kLong, 'x'));
  file.write(" last");
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_FALSE(file.committed());
  file.commit();
  EXPECT_TRUE(file.committed());
  EXPECT_EQ(file.size(), kLong + 11);
  EXPECT_TRUE(read_file(folder / "file") == "first " + std::string(kLong, 'x') + " last");
  EXPECT_EQ(folder.count(), 1);
}

TEST(OutputFile, ThatIsNotCommittedLeavesNothing) {
  const TemporaryFolder folder;
  OutputFile(folder / "file").write(std::string(kLong, 'x'));
  EXPECT_EQ(folder.count(), 0);
}

// Writes pieces of `piece_bytes` with a limit of 3 MiB for files, and tries to continue without that limit.
void fail_and_go_on(const std::string& path, std::size_t piece_bytes) {
  signal(SIGXFSZ, SIG_IGN);  // otherwise the write would end the process instead of failing
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = rlim_t{3} << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  OutputFile file(path);
  const std::string piece(piece_bytes, 'x');
  const auto fill = [&] {
    while (file.size() < 3 * kLong) file.write(piece);
  };
  EXPECT_THAT(message_of<EnvironmentError>(fill), AllOf(HasSubstr(path), HasSubstr("File too large")));

  limit.rlim_cur = before;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THAT(message_of<EnvironmentError>([&] { file.write("x"); }), HasSubstr("File too large"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { file.commit(); }), HasSubstr("File too large"));
  EXPECT_FALSE(file.committed());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(OutputFile, AfterAFailedWriteNeitherGoesOnNorAppears) {
  for (const std::size_t piece_bytes : {std::size_t{1000}, kLong}) {
    const TemporaryFolder folder;
    Child child([&] { fail_and_go_on(folder / "file", piece_bytes); });
    EXPECT_EQ(child.wait(), 0) << piece_bytes;
    EXPECT_EQ(folder.count(), 0) << piece_bytes;
  }
}

TEST(OutputFile, FollowsALinkAndLeavesItOne) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "elsewhere");
  write_file(folder / "elsewhere/target", "old");
  std::filesystem::create_symlink("elsewhere/target", folder / "second");
  std::filesystem::create_symlink(folder / "second", folder / "first");
  std::filesystem::create_symlink("elsewhere/new", folder / "to nothing");
  for (const std::string name : {"first", "to nothing"}) {
    OutputFile file(folder / name);
    file.write("new");
    file.commit();
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name));
    EXPECT_EQ(read_file(folder / name), "new");
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "second"));
  EXPECT_EQ(read_file(folder / "elsewhere/target"), "new");
  EXPECT_EQ(read_file(folder / "elsewhere/new"), "new");
  EXPECT_EQ(folder.count(), 4) << "no temporary file is left";
  std::filesystem::create_symlink("endless", folder / "endless");
  EXPECT_THAT(message_of<EnvironmentError>([&] { OutputFile(folder / "endless"); }),
              HasSubstr("Too many levels of symbolic links"));
}

TEST(OutputFile, WritesThroughAFifoThatIsRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NO_THROW(OutputFile::require_writable(path));
  EXPECT_FALSE(OutputFile::replaces(path));
  EXPECT_THAT(message_of<EnvironmentError>([&] { OutputFile file(path); }),
              AllOf(HasSubstr(path), HasSubstr("without a reader")));
  const FileDescriptor reader{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  EXPECT_NO_THROW(OutputFile::require_writable(path));
  OutputFile file(path);
  file.write("content");
  file.commit();
  char content[20] = {};
  EXPECT_EQ(read(reader.get(), content, sizeof content), 7);
  EXPECT_STREQ(content, "content");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(folder.count(), 1);
}

// Through links in a folder of the test: if they are replaced, the machine's devices are unaffected.
TEST(OutputFile, LeavesDevicesWhatTheyAre) {
  const TemporaryFolder folder;
  for (const std::string name : {"null", "full"}) std::filesystem::create_symlink("/dev/" + name, folder / name);
  OutputFile(folder / "null").commit();
  OutputFile full(folder / "full");
  full.write("content");
  EXPECT_THAT(message_of<EnvironmentError>([&] { full.commit(); }),
              AllOf(HasSubstr(folder / "full"), HasSubstr("No space left on device")));
  EXPECT_FALSE(full.committed());
  for (const std::string name : {"null", "full"}) {
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name));
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/" + name));
    EXPECT_FALSE(OutputFile::replaces(folder / name));
  }
  EXPECT_TRUE(OutputFile::replaces(folder / "absent"));
}

// Standard output that is redirected to a file is written at the current offset of that file.
TEST(OutputFile, WritesToWhatThisProcessHasOpen) {
  const TemporaryFolder folder;
  const FileDescriptor open_file{open((folder / "file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  ASSERT_EQ(write(open_file.get(), "before ", 7), 7);
  for (const std::string place : {"/dev/fd/", "/proc/self/fd/"}) {
    OutputFile file(place + std::to_string(open_file.get()));
    file.write("inside ");
    file.commit();
  }
  ASSERT_EQ(write(open_file.get(), "after", 5), 5);
  EXPECT_EQ(read_file(folder / "file"), "before inside inside after");
  EXPECT_EQ(folder.count(), 1);
}

TEST(OutputFile, TellsBeforehandWhetherItCouldBeWritten) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  EXPECT_NO_THROW(OutputFile::require_writable(folder / "file"));
  EXPECT_NO_THROW(OutputFile::require_writable(folder / "new"));
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(folder.count(), 1);
  EXPECT_THAT(message_of<EnvironmentError>([&] { OutputFile::require_writable(folder.path()); }),
              HasSubstr("Is a directory"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { OutputFile::require_writable(folder / "none/file"); }),
              HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace libtrain::detail
