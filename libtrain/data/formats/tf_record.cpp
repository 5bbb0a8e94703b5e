#include <libtrain/data/formats/tf_record.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/file_buffer.hpp>

namespace libtrain::data {

namespace {

constexpr std::uint64_t kAround = detail::kTfRecordHeaderBytes + detail::kTfRecordFooterBytes;

[[noreturn]] void fail(const File& file, std::uint64_t offset, const std::string& expected_and_found) {
  throw EnvironmentError(text("TFRecord file '", file.name(), "', byte offset ", offset, ": ", expected_and_found,
                              ". The rest of the file cannot be read. Copy or write the file again."));
}

// A length may begin like a compressed file, so its checksum decides.
Compression compression_of_records(const File& file) {
  const auto begin = detail::read_range(file, 0, std::min(file.size(), detail::kTfRecordHeaderBytes));
  return detail::is_tf_record_header(begin) ? Compression::none : compression_of(begin);
}

constexpr detail::ShardFormat kTfRecord{
    .name = "tfrecord", .compression = &compression_of_records, .index = &index_tf_records};

}  // namespace

bool detail::is_tf_record_header(std::string_view header) {
  return header.size() == kTfRecordHeaderBytes &&
         libtrain::detail::masked_crc32c(header.substr(0, 8)) ==
             libtrain::detail::load_little_endian<std::uint32_t>(header.data() + 8);
}

ShardIndex index_tf_records(const File& file) {
  ShardIndex index;
  detail::ReadWindow window(file);
  const std::uint64_t size = file.size();
  for (std::uint64_t offset = 0; offset < size;) {
    const std::uint64_t left = size - offset;
    if (left < kAround) {
      fail(file, offset,
           text("expected a record of at least ", kAround, " bytes, found the end of the file after ", left,
                " (it is truncated)"));
    }
    const std::string_view header = window.at(offset, detail::kTfRecordHeaderBytes);
    const auto bytes = libtrain::detail::load_little_endian<std::uint64_t>(header.data());
    if (!detail::is_tf_record_header(header)) {
      fail(file, offset, text("expected a record's length with its checksum, found ", bytes, " with another checksum"));
    }
    if (bytes > left - kAround) {
      fail(file, offset,
           text("expected a record of ", bytes, " bytes, found the end of the file after ", left - kAround,
                " (it is truncated)"));
    }
    index.add(offset + detail::kTfRecordHeaderBytes, bytes);
    offset += kAround + bytes;
  }
  return index;
}

TfRecordFile::TfRecordFile(std::unique_ptr<const File> file, const ShardOptions& options, DataChecksum checksum)
    : shard_(detail::open_shard(std::move(file), kTfRecord, options)), checksum_(checksum) {}

void TfRecordFile::require_record(std::uint64_t record) const {
  if (record >= size()) {
    throw UsageError(
        text("Record ", record, " of TFRecord file '", name(), "' was requested, but it has ", size(), " records."));
  }
}

// Reads the header as well, to check that a loaded index fits.
void TfRecordFile::read(std::uint64_t record, std::string& data) const {
  require_record(record);
  const auto bytes = static_cast<std::size_t>(shard_.index.bytes(record));
  std::array<char, detail::kTfRecordHeaderBytes> front{};
  data.resize(bytes + kAround - front.size());
  shard_.file->read_parts_at(offset(record), std::as_writable_bytes(std::span{front}),
                             std::as_writable_bytes(std::span{data}));
  const std::string_view header{front.data(), front.size()};
  if (!detail::is_tf_record_header(header) ||
      libtrain::detail::load_little_endian<std::uint64_t>(header.data()) != bytes) {
    detail::fail_changed_shard(describe(record));
  }
  const auto expected = libtrain::detail::load_little_endian<std::uint32_t>(data.data() + bytes);
  data.resize(bytes);
  if (checksum_ == DataChecksum::ignore) return;
  const std::uint32_t found = libtrain::detail::masked_crc32c(data);
  if (found != expected) {
    throw EnvironmentError(text(describe(record), ": expected data of masked CRC-32C ", expected, ", found ", found,
                                " (", bytes, " bytes of data are damaged)."));
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

TfRecordWriter::TfRecordWriter(std::string path) : file_(std::move(path)) {}

void TfRecordWriter::require_open() const {
  if (file_.committed()) {
    throw UsageError(text("The TFRecord file '", file_.path(), "' is finished. Write more records to another file."));
  }
}

void TfRecordWriter::write(std::string_view data) {
  require_open();
  std::string header;
  libtrain::detail::append_little_endian<std::uint64_t>(header, data.size());
  libtrain::detail::append_little_endian(header, libtrain::detail::masked_crc32c(header));
  std::string footer;
  libtrain::detail::append_little_endian(footer, libtrain::detail::masked_crc32c(data));
  file_.write(header);
  file_.write(data);
  file_.write(footer);
  ++size_;
}

void TfRecordWriter::finish() {
  require_open();
  file_.commit();
}

}  // namespace libtrain::data
