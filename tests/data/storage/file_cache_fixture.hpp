#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/data/storage/file_cache.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::test {

/// Bytes of disk space of a file of at most 4032 bytes.
inline constexpr std::uint64_t kSmallEntry = 4096;

/// A storage in memory and a folder for caches of it.
class FileCacheFixture : public ::testing::Test {
 protected:
  data::FileCacheOptions options(std::uint64_t limit_bytes = std::numeric_limits<std::uint64_t>::max()) const {
    return {.directory = folder_,
            .limit_bytes = limit_bytes,
            .free_space_reserve_bytes = 0,
            .block_bytes = 1000,
            .fetch_timeout = std::chrono::seconds{20}};
  }

  // Files named by one letter, of 1000 bytes.
  void put_small_files(const std::string& names) {
    for (const char name : names) storage_.put({name}, content_of(1000, static_cast<unsigned char>(name)));
  }

  data::CacheKey key_of(const std::string& path) const { return data::cache_key(storage_.name(), storage_.info(path)); }

  std::unique_ptr<const data::File> open(data::FileCache& cache, const std::string& path) const {
    return cache.open(storage_, path, key_of(path));
  }

  std::string read(data::FileCache& cache, const std::string& path) const {
    return data::read_all(*open(cache, path), std::uint64_t{1} << 30);
  }

  data::FetchOutcome fetch(data::FileCache& cache, const std::string& path) const {
    return cache.fetch(storage_, path, key_of(path), {});
  }

  // Small files.
  void expect(data::FileCache& cache, const std::string& names) const {
    std::vector<data::CacheKey> keys;
    for (const char name : names) keys.push_back(key_of({name}));
    cache.expect(keys);
  }

  void read_and_release(data::FileCache& cache, const std::string& names) const {
    for (const char name : names) {
      read(cache, {name});
      cache.release(key_of({name}));
    }
  }

  // The small files that have a copy.
  std::string kept(const data::FileCache& cache) const {
    std::string names;
    for (const auto& file : storage_.list("")) {
      if (cache.contains(data::cache_key(storage_.name(), file))) names += file.path;
    }
    return names;
  }

  std::vector<std::string> entries() const { return files_in(folder_ / "entries"); }
  std::vector<std::string> unfinished() const { return files_in(folder_ / "fetching"); }

  const TemporaryFolder scratch_;
  const std::filesystem::path folder_ = scratch_ / "cache";
  MemoryStorage storage_;
};

}  // namespace libtrain::test
