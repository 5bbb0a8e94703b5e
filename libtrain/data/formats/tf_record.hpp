#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
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

/// Whether reading a record checks the CRC-32C of its data. Lengths are always checked.
enum class DataChecksum { verify, ignore };

/// A TFRecord file whose records are read in any order. A file that is compressed as a whole (gzip or zlib, told by its
/// content) is inflated into memory when it is opened. Immutable: any thread may read, several at once.
class TfRecordFile {
 public:
  /// Builds the index, or takes it from `options.index_folder`. Throws what index_tf_records() throws, EnvironmentError
  /// for a damaged or too large compressed file, and UsageError without a file.
  explicit TfRecordFile(std::unique_ptr<const File> file, const ShardOptions& options = {},
                        DataChecksum checksum = DataChecksum::verify);

  const std::string& name() const { return shard_.file->name(); }

  /// The number of records.
  std::uint64_t size() const { return shard_.index.size(); }

  /// Makes `data` the data of record number `record`, in the memory that it has where that suffices. Throws
  /// TfRecordError with TfRecordLoss::record for a wrong checksum, StorageUnavailable where the header in front is not
  /// the one that was indexed, what File::read_at throws, and UsageError unless `record` < size().
  void read(std::uint64_t record, std::string& data) const;

  /// Bytes of the data of a record, and where it begins in the file (in its inflated content, where it is compressed),
  /// header included. Throw UsageError unless `record` < size().
  std::uint64_t bytes(std::uint64_t record) const;
  std::uint64_t offset(std::uint64_t record) const;

  /// How messages name a record: its number, its file, its offset.
  std::string describe(std::uint64_t record) const;

 private:
  void require_record(std::uint64_t record) const;

  detail::IndexedShard shard_;
  DataChecksum checksum_;
};

/// Writes a TFRecord file, uncompressed, in the layout that index_tf_records() describes. The file appears, complete,
/// with finish(); without that call nothing is left. Errors are EnvironmentError that name the file. Used by one thread
/// at a time.
class TfRecordWriter {
 public:
  /// A file in an existing local folder; finish() replaces one of that name.
  explicit TfRecordWriter(std::string path);

  /// Throws UsageError after finish().
  void write(std::string_view data);

  /// Throws UsageError when called again.
  void finish();

  /// Records written so far.
  std::uint64_t size() const { return size_; }

  /// Bytes of the file so far.
  std::uint64_t bytes() const { return file_.size(); }

 private:
  void require_open() const;

  libtrain::detail::OutputFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace libtrain::data
