#include <libtrain/data/formats/tf_record_writer.hpp>

#include <utility>

#include <libtrain/base/crc32c.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/little_endian.hpp>

namespace libtrain::data {

TfRecordWriter::TfRecordWriter(std::string path) : file_(std::move(path)) {}

void TfRecordWriter::require_open() const {
  if (file_.committed()) {
    throw UsageError(text("The TFRecord file '", file_.path(), "' is finished; write further records to another one."));
  }
}

void TfRecordWriter::write(std::string_view data) {
  require_open();
  std::string header;
  detail::append_little_endian<std::uint64_t>(header, data.size());
  detail::append_little_endian(header, masked_crc32c(header));
  std::string footer;
  detail::append_little_endian(footer, masked_crc32c(data));
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
