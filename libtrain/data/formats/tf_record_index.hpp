#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// How much of a TFRecord file is lost with a damaged place.
enum class TfRecordLoss {
  record,        ///< the content of one record; the records behind it can be read
  rest_of_file,  ///< where the next record begins is not known
};

/// A damaged TFRecord file.
class TfRecordError : public EnvironmentError {
 public:
  TfRecordError(const std::string& message, TfRecordLoss loss, std::uint64_t offset)
      : EnvironmentError(message), loss_(loss), offset_(offset) {}

  TfRecordLoss loss() const noexcept { return loss_; }

  /// Where the damaged record begins in the file, in bytes.
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  TfRecordLoss loss_;
  std::uint64_t offset_;
};

/// The records of an uncompressed TFRecord file, found from header to header (tensorflow/core/lib/io/record_writer.h):
/// the length as a little-endian 64-bit number, its masked CRC-32C, the data, its masked CRC-32C. The checksum of every
/// length is checked, and each record must end within the file; the data are not looked at. An empty file has no
/// records. Throws TfRecordError with TfRecordLoss::rest_of_file, and what File::read_at throws.
ShardIndex index_tf_records(const File& file);

namespace detail {

constexpr std::uint64_t kTfRecordHeaderBytes = 12;
constexpr std::uint64_t kTfRecordFooterBytes = 4;

/// Whether this is the header of a record, by its checksum.
bool is_tf_record_header(std::string_view header);

}  // namespace detail

}  // namespace libtrain::data
