#include <libtrain/data/formats/parquet.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::testing::message_of;
using ::testing::HasSubstr;

// What needs files that only Python writes is in parquet_peer_test.py.

TEST(Parquet, NeedsAFile) {
  EXPECT_THAT(message_of<UsageError>([] { ParquetFile(nullptr); }), HasSubstr("Parquet file"));
}

}  // namespace
}  // namespace libtrain::data
