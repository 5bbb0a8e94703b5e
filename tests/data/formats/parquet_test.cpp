#include <libtrain/data/formats/parquet.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include <tests/data/formats/hex_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::HasSubstr;

// What needs files that only Python writes is in parquet_peer_test.py.

TEST(Parquet, NeedsAFile) {
  EXPECT_THAT(message_of<UsageError>([] { ParquetFile(nullptr); }), HasSubstr("Parquet file"));
}

// pyarrow 26: pq.write_table(pa.table({"label": pa.array([7, 9], pa.int64())}), file, use_dictionary=False,
//                            compression="none", write_statistics=False, store_schema=False)
constexpr std::string_view kTwoLabels =
    "504152311500152c152c2c15041500150615061c000000020000000401070000000000000009000000000000001504192c35001806736368"
    "656d611502001504250218056c6162656c001604191c191c26001c1504192506001918056c6162656c15001604165216522608491c150015"
    "001502003c2906192600040000001652160426081652002820706172717565742d6370702d6172726f772076657273696f6e2032362e302e"
    "31191c1c0000008200000050415231";

// Does something before each reading, such as to fail.
class WatchedFile final : public File {
 public:
  WatchedFile(std::string bytes, const std::function<void()>& before_reading)
      : file_(std::move(bytes)), before_reading_(before_reading) {}

  const std::string& name() const override { return file_.name(); }
  std::uint64_t size() const override { return file_.size(); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    before_reading_();
    file_.read_at(offset, to);
  }

 private:
  MemoryFile file_;
  const std::function<void()>& before_reading_;
};

TEST(Parquet, PassesOnWhatReadingTheFileThrew) {
  if (!has_arrow()) GTEST_SKIP() << "this build reads no Parquet";
  std::function<void()> before_reading = [] {};
  const auto open = [&] { return ParquetFile(std::make_unique<WatchedFile>(from_hex(kTwoLabels), before_reading)); };
  const ParquetFile file = open();
  const auto second_label = [&] { return file.read_row_group(0, {"label"}).integer(1, 0); };
  EXPECT_EQ(second_label(), 9);

  before_reading = [] { throw StorageUnavailable("The store is away."); };
  EXPECT_EQ(message_of<StorageUnavailable>(second_label), "The store is away.");
  EXPECT_EQ(message_of<StorageUnavailable>(open), "The store is away.");
  before_reading = [] { throw std::bad_alloc(); };
  EXPECT_THROW(second_label(), std::bad_alloc);

  before_reading = [] {};
  EXPECT_EQ(second_label(), 9);
}

}  // namespace
}  // namespace libtrain::data
