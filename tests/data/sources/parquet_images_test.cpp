#include <libtrain/data/sources/parquet_images.hpp>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/sources/image_sets.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::SetFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What needs files that only Python writes is in parquet_images_peer_test.py.

TEST(ParquetImages, RefuseAFolderWithoutParquetFiles) {
  const SetFolder set;
  set.write("a.txt", "");
  EXPECT_THAT(message_of<EnvironmentError>([&] { ParquetImages(set.storage()); }),
              AllOf(HasSubstr(set.path()), HasSubstr("Parquet files")));
}

TEST(ParquetImages, RefuseAFileThatIsNoParquet) {
  const SetFolder set;
  set.write("a.parquet", "no Parquet");
  EXPECT_THAT(message_of<EnvironmentError>([&] { ParquetImages(set.storage()); }),
              HasSubstr(set.path() + "/a.parquet"));
}

TEST(ParquetImages, NeedRoomForARowGroup) {
  const SetFolder set;
  EXPECT_THAT(message_of<UsageError>([&] { ParquetImages(set.storage(), {.row_groups_in_memory = 0}); }),
              HasSubstr("row_groups_in_memory"));
}

TEST(ParquetImages, NeedAStorage) {
  EXPECT_THROW(ParquetImages(nullptr), UsageError);
}

}  // namespace
}  // namespace libtrain::data
