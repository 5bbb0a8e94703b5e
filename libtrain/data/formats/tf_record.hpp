#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/base/output_file.hpp>
#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// The records of an uncompressed TFRecord file, found from header to header (tensorflow/core/lib/io/record_writer.h):
/// the length as a little-endian 64-bit number, its masked CRC-32C, the data, its masked CRC-32C. Checks the checksum
/// of every length, and that each record ends within the file, but not the data. An empty file has no records. Throws
/// EnvironmentError that names the byte offset of the first damaged record, and what File::read_at throws.
ShardIndex index_tf_records(const File& file);

namespace detail {

constexpr std::uint64_t kTfRecordHeaderBytes = 12;
constexpr std::uint64_t kTfRecordFooterBytes = 4;

/// Whether this is the header of a record, by its checksum.
bool is_tf_record_header(std::string_view header);

}  // namespace detail

/// Whether reading a record checks the CRC-32C of its data. Lengths are always checked.
enum class DataChecksum { verify, ignore };

/// A TFRecord file with random access to its records. A file that is compressed as a whole (gzip or zlib, recognised by
/// its content) is inflated into memory when it is opened. Immutable: any thread may read, several at once.
class TfRecordFile {
 public:
  /// Builds the index, or loads it from `options.index_folder`. Throws what index_tf_records() throws, EnvironmentError
  /// for a damaged or too large compressed file, and UsageError without a file.
  explicit TfRecordFile(std::unique_ptr<const File> file, const ShardOptions& options = {},
                        DataChecksum checksum = DataChecksum::verify);

  const std::string& name() const { return shard_.file->name(); }

  /// The number of records.
  std::uint64_t size() const { return shard_.index.size(); }

  /// Reads the data of record number `record` into `data`, whose memory is reused. Throws EnvironmentError for a wrong
  /// checksum (other records can still be read), StorageUnavailable if the record's header is not the one that was
  /// indexed, what File::read_at throws, and UsageError unless `record` < size().
  void read(std::uint64_t record, std::string& data) const;

  /// The length of the data of a record, and the offset of its header in the file (or in its inflated content). Throw
  /// UsageError unless `record` < size().
  std::uint64_t bytes(std::uint64_t record) const;
  std::uint64_t offset(std::uint64_t record) const;

  /// The number, file and offset of a record, for messages.
  std::string describe(std::uint64_t record) const;

 private:
  void require_record(std::uint64_t record) const;

  detail::IndexedShard shard_;
  DataChecksum checksum_;
};

/// Writes an uncompressed TFRecord file in the layout that index_tf_records() describes. The complete file appears with
/// finish(); without that call no file is left. Errors are EnvironmentError that name the file. Used by one thread at a
/// time.
class TfRecordWriter {
 public:
  /// Writes to an existing local folder; finish() replaces an existing file.
  explicit TfRecordWriter(std::string path);

  /// Throws UsageError after finish().
  void write(std::string_view data);

  /// Throws UsageError when called again.
  void finish();

  /// The number of records so far.
  std::uint64_t size() const { return size_; }

  /// The size of the file so far.
  std::uint64_t bytes() const { return file_.size(); }

 private:
  void require_open() const;

  libtrain::detail::OutputFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace libtrain::data
