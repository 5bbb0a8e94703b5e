#include <libtrain/data/storage/cache_directory.hpp>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <system_error>
#include <thread>

#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>

#include <tests/support/temporary_folder.hpp>

namespace libtrain::data::detail {
namespace {

namespace fs = std::filesystem;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;

constexpr ContentHash kContent{.high = 1, .low = 2};

Deadline in_time() {
  return Deadline::after(std::chrono::seconds{20});
}

int opens_of(const fs::path& path) {
  const auto wanted = fs::canonical(path);
  int opens = 0;
  for (const auto& descriptor : fs::directory_iterator("/proc/self/fd")) {
    std::error_code closed_by_now;
    if (fs::read_symlink(descriptor.path(), closed_by_now) == wanted) ++opens;
  }
  return opens;
}

// Waits until another thread has opened the file that this one holds the lock of. It cannot get it, so that it ends
// only where its own patience does.
void wait_for_second_open(const fs::path& path, const std::future<DiskFile>& thread) {
  while (opens_of(path) < 2 && thread.wait_for(std::chrono::seconds{0}) != std::future_status::ready) {
    std::this_thread::yield();
  }
}

TEST(CacheDirectory, WhoWaitedForAClaimThatBecameAnEntryMakesOneOfItsOwn) {
  const TemporaryFolder folder;
  const CacheDirectory directory(folder.path(), 0, 0);
  auto first = directory.claim(kContent, in_time(), {});
  ASSERT_EQ(first.write(0, "content"), 0);
  auto second = std::async(std::launch::async, [&] { return directory.claim(kContent, in_time(), {}); });
  wait_for_second_open(directory.fetching_path(kContent), second);
  fs::rename(directory.fetching_path(kContent), directory.entry_path(kContent));
  first = DiskFile{};
  const auto claim = second.get();
  ASSERT_TRUE(claim.is_open());
  EXPECT_TRUE(claim.is_at(directory.fetching_path(kContent)));
  EXPECT_EQ(claim.size(), 0u);
  EXPECT_EQ(read_file(directory.entry_path(kContent)), "content");
}

TEST(CacheDirectory, AnEntryThatIsEvictedBeforeItIsLockedIsNone) {
  const TemporaryFolder folder;
  const CacheDirectory directory(folder.path(), 0, 0);
  const auto path = directory.entry_path(kContent);
  const auto evicting = open_to_write(path);
  ASSERT_TRUE(try_lock(evicting, LockMode::exclusive));
  auto opened = std::async(std::launch::async, [&] { return directory.open_entry(kContent); });
  wait_for_second_open(path, opened);
  EXPECT_TRUE(fs::remove(path));
  unlock(evicting);
  EXPECT_FALSE(opened.get().is_open());
}

}  // namespace
}  // namespace libtrain::data::detail
