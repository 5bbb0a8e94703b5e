// LibTorch's wheel exports its own, older std::filesystem: that of the C++ library must be found first (see
// cmake/FindLibTorch.cmake). These tests are meaningful only in a program that is linked with LibTorch.

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace libtrain {
namespace {

namespace fs = std::filesystem;

class Filesystem : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "libtrain_filesystem_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    ASSERT_TRUE(fs::create_directories(root_ / "a" / "b"));
    std::ofstream{root_ / "a" / "b" / "deep"} << "12345";
    std::ofstream{root_ / "file"} << "1";
    fs::create_directory_symlink(root_ / "a", root_ / "link");
  }
  void TearDown() override { fs::remove_all(root_); }

  template <typename Iterator>
  std::set<std::string> listing() const {
    std::set<std::string> names;
    for (const auto& entry : Iterator(root_)) names.insert(entry.path().lexically_relative(root_).string());
    return names;
  }

  fs::path root_;
};

TEST_F(Filesystem, WalksDirectories) {
  EXPECT_EQ(listing<fs::directory_iterator>(), (std::set<std::string>{"a", "file", "link"}));
  EXPECT_EQ(listing<fs::recursive_directory_iterator>(),
            (std::set<std::string>{"a", "a/b", "a/b/deep", "file", "link"}));
  EXPECT_EQ(fs::file_size(root_ / "a" / "b" / "deep"), 5u);
  EXPECT_TRUE(fs::equivalent(root_ / "link", root_ / "a"));
}

TEST_F(Filesystem, RemovesTreesButNotWhatLinksPointTo) {
  EXPECT_EQ(fs::remove_all(root_ / "link"), 1u);
  EXPECT_TRUE(fs::exists(root_ / "a" / "b" / "deep"));
  EXPECT_EQ(fs::remove_all(root_ / "a"), 3u);
  EXPECT_FALSE(fs::exists(root_ / "a"));
  EXPECT_EQ(fs::remove_all(root_ / "a"), 0u);
}

TEST_F(Filesystem, IsTheOneOfTheCppLibrary) {
  // std::filesystem::remove_all(const path&), which not every LibTorch's does without a crash.
  const void* function = dlsym(RTLD_DEFAULT, "_ZNSt10filesystem10remove_allERKNS_7__cxx114pathE");
  ASSERT_NE(function, nullptr);
  Dl_info library{};
  ASSERT_NE(dladdr(function, &library), 0);
  EXPECT_THAT(library.dli_fname, ::testing::HasSubstr("libstdc++"));
}

TEST_F(Filesystem, KnowsTheTemporaryDirectory) {
  EXPECT_TRUE(fs::is_directory(fs::temp_directory_path()));
  EXPECT_EQ(root_.parent_path(), fs::temp_directory_path());
}

}  // namespace
}  // namespace libtrain
