#include <libtrain/data/storage/output_file.hpp>

#include <signal.h>
#include <sys/resource.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data::detail {
namespace {

using libtrain::testing::Child;
using libtrain::testing::message_of;
using libtrain::testing::read_file;
using libtrain::testing::TemporaryFolder;
using libtrain::testing::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

// More than is kept in memory.
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

// Writes pieces of `piece_bytes` where files may have 3 MiB, and tries to go on when they may have more.
void fail_and_go_on(const std::string& path, std::size_t piece_bytes) {
  signal(SIGXFSZ, SIG_IGN);  // or the write would not fail but end the process
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

}  // namespace
}  // namespace libtrain::data::detail
