#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <libtrain/data/storage/staging.hpp>

#include <tests/data/storage/cache_test_support.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::test {

using Contents = std::map<std::string, std::string>;

/// All files below a folder, by their path there.
inline Contents contents_of(const std::filesystem::path& folder) {
  Contents contents;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (!file.is_regular_file()) continue;
    std::ostringstream bytes;
    if (file.file_size() > 0) bytes << std::ifstream(file.path(), std::ios::binary).rdbuf();
    contents[file.path().string().substr(folder.string().size() + 1)] = bytes.str();
  }
  return contents;
}

/// A storage in memory, and a folder to stage it to.
class StagingFixture : public ::testing::Test {
 protected:
  data::StagingOptions options() const {
    return {
        .threads = 2, .free_space_reserve_bytes = 0, .block_bytes = 1000, .stall_timeout = std::chrono::seconds{20}};
  }

  // Puts the files train/0 to train/<count - 1>, of 2500 bytes.
  void put_files(unsigned count) {
    for (unsigned i = 0; i < count; ++i) put("train/" + std::to_string(i), content_of(2500, i));
  }

  void put(const std::string& path, const std::string& bytes, const std::string& version = "1") {
    storage_.put(path, bytes, version);
    expected_[path.substr(path.find('/') + 1)] = bytes;
  }

  data::StagingResult stage_all() const { return data::stage(storage_, "train", target_, options()); }

  const TemporaryFolder scratch_;
  const std::filesystem::path target_ = scratch_ / "set";
  MemoryStorage storage_;
  Contents expected_;  // of the folder train
};

}  // namespace libtrain::test
