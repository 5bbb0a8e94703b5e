// The secret that the ranks of a job have in common, and the encryption that is derived from it.

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/tcp/cipher.hpp>
#include <libtrain/comm/detail/tcp/job_key.hpp>

#include <tests/support/fork_child.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::test {
namespace {

using detail::Cipher;
using detail::find_job_key;
using ::testing::AllOf;
using ::testing::HasSubstr;

Environment home(const std::string& path) {
  return Environment{{{"HOME", path}}};
}

TEST(JobKey, IsThatOfTheUserAndTheJob) {
  const TemporaryFolder folder;
  const auto key = find_job_key(home(folder.path()), "job 1");
  EXPECT_EQ(key.source, folder / ".config/libtrain/secret");
  EXPECT_EQ(find_job_key(home(folder.path()), "job 1").key.secret, key.key.secret);
  EXPECT_NE(find_job_key(home(folder.path()), "job 2").key.secret, key.key.secret);
  EXPECT_NE(find_job_key(home(folder.path()), "job 2").key.id, key.key.id);
  const TemporaryFolder other;
  EXPECT_NE(find_job_key(home(other.path()), "job 1").key.secret, key.key.secret);
  EXPECT_EQ(find_job_key(home(other.path()), "job 1").key.id, key.key.id);
  EXPECT_NE(detail::open_key("job 1").secret, key.key.secret);
  EXPECT_EQ(detail::open_key("job 1").id, key.key.id);
}

TEST(JobKey, LiesInAFileThatOnlyItsUserCanRead) {
  const TemporaryFolder folder;
  const auto path = find_job_key(home(folder.path()), "job").source;
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(read_file(path).size(), 65U);  // 32 random bytes as digits, and a line end
}

TEST(JobKey, IsNotWhatOthersMayHaveReadOrWritten) {
  const TemporaryFolder folder;
  const auto first = find_job_key(home(folder.path()), "job");
  EXPECT_EQ(first.warning, "");
  ASSERT_EQ(chmod(first.source.c_str(), 0644), 0);
  const auto second = find_job_key(home(folder.path()), "job");
  EXPECT_EQ(second.source, "/dev/shm/libtrain-" + std::to_string(geteuid()) + "/secret");
  EXPECT_NE(second.key.secret, first.key.secret);
  EXPECT_THAT(second.warning, AllOf(HasSubstr(first.source), HasSubstr("open to other users"), HasSubstr("deleted")));
  EXPECT_THAT(
      message_of<EnvironmentError>([&] { find_job_key(Environment{{{"LIBTRAIN_SECRET_FILE", first.source}}}, "job"); }),
      AllOf(HasSubstr(first.source), HasSubstr("open to other users"), HasSubstr("chmod go-rwx")));
}

TEST(JobKey, MayBeInAFileOfRootsForAGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of root's";
  const TemporaryFolder folder;
  write_file(folder / "key", "0123456789abcdef\n");
  ASSERT_EQ(chmod((folder / "key").c_str(), 0440), 0);
  EXPECT_EQ(find_job_key(Environment{{{"LIBTRAIN_SECRET_FILE", folder / "key"}}}, "job").source, folder / "key");
}

TEST(JobKey, IsTheSameForRanksThatMakeItAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    std::vector<std::thread> ranks;
    std::array<detail::Digest, 8> secrets{};
    for (auto& secret : secrets) {
      ranks.emplace_back([&] { secret = find_job_key(home(folder.path()), "job").key.secret; });
    }
    for (auto& rank : ranks) rank.join();
    EXPECT_EQ((std::set<detail::Digest>{secrets.begin(), secrets.end()}).size(), 1U);
    std::filesystem::remove(folder / ".config/libtrain/secret");
    EXPECT_TRUE(std::filesystem::is_empty(folder / ".config/libtrain"));
  }
}

TEST(JobKey, IsWhatTheUserGives) {
  const TemporaryFolder folder;
  write_file(folder / "key", "0123456789abcdef\n");
  ASSERT_EQ(chmod((folder / "key").c_str(), 0600), 0);
  const auto given = find_job_key(Environment{{{"LIBTRAIN_SECRET", "0123456789abcdef"}}}, "job");
  const auto read = find_job_key(Environment{{{"LIBTRAIN_SECRET_FILE", folder / "key"}}}, "job");
  EXPECT_EQ(given.key.secret, read.key.secret);
  EXPECT_EQ(given.source, "LIBTRAIN_SECRET");
  EXPECT_TRUE(given.is_of_all_hosts && read.is_of_all_hosts);
  EXPECT_THAT(
      message_of<EnvironmentError>([&] { find_job_key(Environment{{{"LIBTRAIN_SECRET", "password"}}}, "job"); }),
      AllOf(HasSubstr("LIBTRAIN_SECRET has only 8 characters"), HasSubstr("at least 16")));
  EXPECT_THAT(message_of<EnvironmentError>(
                  [&] { find_job_key(Environment{{{"LIBTRAIN_SECRET_FILE", folder / "none"}}}, "job"); }),
              HasSubstr(folder / "none"));
}

TEST(JobKey, FollowsNoLinkOfAnother) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / ".config/libtrain");
  write_file(folder / "known", std::string(64, 'k'));
  std::filesystem::create_symlink(folder / "known", folder / ".config/libtrain/secret");
  const auto key = find_job_key(home(folder.path()), "job");
  EXPECT_EQ(key.source, "/dev/shm/libtrain-" + std::to_string(geteuid()) + "/secret");
  EXPECT_THAT(key.warning, HasSubstr("cannot be opened"));
}

TEST(JobKey, IsKeptInMemoryWithoutAHomeDirectory) {
  for (const auto& environment : {Environment{}, home("/proc/no/home")}) {
    const auto key = find_job_key(environment, "job");
    EXPECT_EQ(key.source, "/dev/shm/libtrain-" + std::to_string(geteuid()) + "/secret");
    EXPECT_FALSE(key.is_of_all_hosts);
  }
}

// In containers, HOME is often that of another user.
TEST(JobKey, IsKeptInMemoryWhereTheHomeDirectoryMayNotBeEntered) {
  const TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0), 0);
  const pid_t child = fork_child();
  if (child == 0) {
    constexpr uid_t kNobody = 65'534;
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(3);
    try {
      const auto expected = "/dev/shm/libtrain-" + std::to_string(geteuid()) + "/secret";
      _exit(find_job_key(home(folder.path()), "job").source == expected ? 0 : 1);
    } catch (const Error&) {
      _exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(JobKey, KnowsFileSystemsOfSeveralHosts) {
  EXPECT_TRUE(detail::is_network_file_system(0x6969));      // NFS_SUPER_MAGIC
  EXPECT_TRUE(detail::is_network_file_system(0x0BD00BD0));  // Lustre
  EXPECT_TRUE(detail::is_network_file_system(static_cast<unsigned long>(static_cast<int>(0xFF534D42))));  // CIFS
  EXPECT_FALSE(detail::is_network_file_system(0xEF53));                                                   // ext4
  EXPECT_FALSE(detail::is_network_file_system(0x01021994));                                               // tmpfs
  EXPECT_FALSE(detail::is_network_file_system(0x794C7630));                                               // overlayfs
}

detail::Command command(const std::vector<std::string>& words) {
  std::string bytes;
  for (const auto& word : words) bytes += word + '\0';
  return detail::parse_command(bytes);
}

TEST(Command, LeavesOutWhatDiffersBetweenRanks) {
  const auto first = command({"/opt/bin/train", "--seed", "1", "--rank", "0"});
  EXPECT_EQ(first.program, "train");
  EXPECT_NE(first.arguments, 0U);
  EXPECT_EQ(command({"./train", "--rank=3", "--seed", "1", "--local-rank", "1"}).arguments, first.arguments);
  EXPECT_NE(command({"./train", "--seed", "2"}).arguments, first.arguments);
  EXPECT_NE(command({"./train", "--seed", "1", "--ranks", "0"}).arguments, first.arguments);
  EXPECT_NE(detail::own_command().program, "");
}

TEST(Cipher, OpensWhatWasSealedInItsOrder) {
  const auto key = detail::GroupKey::random().secret;
  Cipher sealer{key, Cipher::Direction::from_caller};
  Cipher opener{key, Cipher::Direction::from_caller};
  for (const std::string plain : {"first", "", "third of them"}) {
    std::string bytes = plain;
    const auto tag = sealer.seal(bytes.data(), bytes.data(), bytes.size());
    EXPECT_EQ(bytes == plain, plain.empty());
    EXPECT_TRUE(opener.open(bytes.data(), bytes.data(), bytes.size(), tag));
    EXPECT_EQ(bytes, plain);
  }
}

TEST(Cipher, RefusesWhatWasChangedLeftOutOrSentBack) {
  const auto key = detail::GroupKey::random().secret;
  const auto opens = [&](Cipher::Direction direction, int left_out, int bit) {
    Cipher sealer{key, Cipher::Direction::from_caller};
    Cipher opener{key, direction};
    std::string bytes = "gradient";
    auto tag = sealer.seal(bytes.data(), bytes.data(), bytes.size());
    for (int piece = 0; piece < left_out; ++piece) {
      bytes = "gradient";
      tag = sealer.seal(bytes.data(), bytes.data(), bytes.size());
    }
    if (bit >= 0)
      bytes[static_cast<std::size_t>(bit / 8)] =
          static_cast<char>(bytes[static_cast<std::size_t>(bit / 8)] ^ (1 << bit % 8));
    return opener.open(bytes.data(), bytes.data(), bytes.size(), tag);
  };
  EXPECT_TRUE(opens(Cipher::Direction::from_caller, 0, -1));
  EXPECT_FALSE(opens(Cipher::Direction::from_answerer, 0, -1));
  EXPECT_FALSE(opens(Cipher::Direction::from_caller, 1, -1));
  for (int bit = 0; bit < 64; ++bit) EXPECT_FALSE(opens(Cipher::Direction::from_caller, 0, bit));
}

// McGrew and Viega, The Galois/Counter Mode of Operation, test case 14: all zeros, as the first piece under a key of
// zeros.
TEST(Cipher, IsAes256Gcm) {
  Cipher cipher{detail::Digest{}, Cipher::Direction::from_caller};
  std::array<unsigned char, 16> block{};
  const auto tag = cipher.seal(block.data(), block.data(), block.size());
  const std::array<unsigned char, 16> sealed = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e,
                                                0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18};
  const Cipher::Tag expected = {0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0,
                                0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
  EXPECT_EQ(block, sealed);
  EXPECT_EQ(tag, expected);
}

}  // namespace
}  // namespace libtrain::test
