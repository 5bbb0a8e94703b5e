#include <libtrain/data/formats/tf_record_index.hpp>

#include <libtrain/base/crc32c.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/little_endian.hpp>
#include <libtrain/data/formats/read_window.hpp>

namespace libtrain::data {

namespace {

constexpr std::uint64_t kAround = detail::kTfRecordHeaderBytes + detail::kTfRecordFooterBytes;

[[noreturn]] void fail(const File& file, std::uint64_t offset, const std::string& expected_and_found) {
  throw TfRecordError(text("TFRecord file '", file.name(), "', byte offset ", offset, ": ", expected_and_found,
                           ". The rest of the file cannot be read; copy or write it again."),
                      TfRecordLoss::rest_of_file, offset);
}

}  // namespace

bool detail::is_tf_record_header(std::string_view header) {
  return header.size() == kTfRecordHeaderBytes &&
         masked_crc32c(header.substr(0, 8)) == load_little_endian<std::uint32_t>(header.data() + 8);
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
    const auto bytes = detail::load_little_endian<std::uint64_t>(header.data());
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

}  // namespace libtrain::data
