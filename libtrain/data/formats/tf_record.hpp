#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <libtrain/data/formats/indexed_shard.hpp>
#include <libtrain/data/formats/tf_record_index.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

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
  /// TfRecordError with TfRecordLoss::record for a wrong checksum, what File::read_at throws, and UsageError unless
  /// `record` < size().
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

}  // namespace libtrain::data
