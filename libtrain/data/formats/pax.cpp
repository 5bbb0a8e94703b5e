#include <libtrain/data/formats/pax.hpp>

#include <charconv>
#include <cstddef>
#include <system_error>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/tar_header.hpp>

namespace libtrain::data::detail {

namespace {

struct Record {
  std::string_view keyword = {};
  std::string_view value = {};
  std::size_t bytes = 0;
};

std::optional<Record> first_record(std::string_view records) {
  std::size_t bytes = 0;
  const char* const begin = records.data();
  const auto [end, error] = std::from_chars(begin, begin + records.size(), bytes);
  const auto digits = static_cast<std::size_t>(end - begin);
  // The shortest one holds a space, a letter, the equals sign and the newline.
  if (error != std::errc{} || bytes > records.size() || bytes < digits + 4) return std::nullopt;
  if (records[digits] != ' ' || records[bytes - 1] != '\n') return std::nullopt;
  const std::string_view body = records.substr(digits + 1, bytes - digits - 2);
  const std::size_t equals = body.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  return Record{.keyword = body.substr(0, equals), .value = body.substr(equals + 1), .bytes = bytes};
}

}  // namespace

void parse_pax(std::string_view records, const std::string& file, std::uint64_t offset, PaxValues& values) {
  // Some programs fill what is left of the block's content with zeros.
  while (!records.empty() && records.front() != '\0') {
    const auto record = first_record(records);
    if (!record) {
      fail_tar(file, offset, "expected a record 'length keyword=value' of an extended header, found something else");
    }
    if (record->keyword == "path") values.path = record->value;
    if (record->keyword == "size") values.size = record->value;
    if (record->keyword.starts_with("GNU.sparse.")) {
      fail_tar(file, offset, "expected a file that is stored whole, found a sparse one; pack it without --sparse");
    }
    records.remove_prefix(record->bytes);
    offset += record->bytes;
  }
}

std::string pax_record(std::string_view keyword, std::string_view value) {
  const std::size_t rest = keyword.size() + value.size() + 3;
  std::size_t bytes = rest + 1;
  while (bytes != rest + std::to_string(bytes).size()) bytes = rest + std::to_string(bytes).size();
  return text(bytes, " ", keyword, "=", value, "\n");
}

}  // namespace libtrain::data::detail
