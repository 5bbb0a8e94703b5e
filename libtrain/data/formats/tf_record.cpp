#include <libtrain/data/formats/tf_record.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include <libtrain/base/crc32c.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/little_endian.hpp>

namespace libtrain::data {

namespace {

// A length may begin as a compressed file does, so that its checksum has to decide.
Compression compression_of_records(const File& file) {
  const auto begin = detail::read_range(file, 0, std::min(file.size(), detail::kTfRecordHeaderBytes));
  return detail::is_tf_record_header(begin) ? Compression::none : compression_of(begin);
}

constexpr detail::ShardFormat kTfRecord{
    .name = "tfrecord", .compression = &compression_of_records, .index = &index_tf_records};

}  // namespace

TfRecordFile::TfRecordFile(std::unique_ptr<const File> file, const ShardOptions& options, DataChecksum checksum)
    : shard_(detail::open_shard(std::move(file), kTfRecord, options)), checksum_(checksum) {}

void TfRecordFile::require_record(std::uint64_t record) const {
  if (record >= size()) {
    throw UsageError(
        text("Record ", record, " of TFRecord file '", name(), "' was asked for, which has ", size(), " records."));
  }
}

void TfRecordFile::read(std::uint64_t record, std::string& data) const {
  require_record(record);
  const auto bytes = static_cast<std::size_t>(shard_.index.bytes(record));
  data.resize(bytes + detail::kTfRecordFooterBytes);
  shard_.file->read_at(shard_.index.offset(record), std::as_writable_bytes(std::span{data}));
  const auto expected = detail::load_little_endian<std::uint32_t>(data.data() + bytes);
  data.resize(bytes);
  if (checksum_ == DataChecksum::ignore) return;
  const std::uint32_t found = masked_crc32c(data);
  if (found != expected) {
    throw TfRecordError(text(describe(record), ": expected data of masked CRC-32C ", expected, ", found ", found, " (",
                             bytes, " bytes of data are damaged)."),
                        TfRecordLoss::record, offset(record));
  }
}

std::uint64_t TfRecordFile::bytes(std::uint64_t record) const {
  require_record(record);
  return shard_.index.bytes(record);
}

std::uint64_t TfRecordFile::offset(std::uint64_t record) const {
  require_record(record);
  return shard_.index.offset(record) - detail::kTfRecordHeaderBytes;
}

std::string TfRecordFile::describe(std::uint64_t record) const {
  return text("TFRecord file '", name(), "', record ", record, " at byte offset ", offset(record));
}

}  // namespace libtrain::data
