#include <libtrain/data/formats/detail/tar_header.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

std::string_view field(std::string_view block, TarField place) {
  return block.substr(place.begin, place.bytes);
}

std::string_view until_zero(std::string_view field) {
  return field.substr(0, field.find('\0'));
}

// Octal digits after spaces, up to a space, a zero byte or the end; no digits mean 0.
std::optional<std::uint64_t> parse_octal(std::string_view field) {
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  std::uint64_t number = 0;
  for (const char digit : field) {
    if (digit == ' ' || digit == '\0') break;
    if (digit < '0' || digit > '7') return std::nullopt;
    number = number << 3 | static_cast<std::uint64_t>(digit - '0');
  }
  return number;
}

// Big-endian after a byte of 0x80; 0xff begins a negative number.
std::optional<std::uint64_t> parse_base_256(std::string_view field) {
  if (static_cast<std::uint8_t>(field.front()) != 0x80) return std::nullopt;
  std::uint64_t number = 0;
  for (const char byte : field.substr(1)) {
    if (number >> 56 != 0) return std::nullopt;
    number = number << 8 | static_cast<std::uint8_t>(byte);
  }
  return number;
}

std::optional<std::uint64_t> parse_number(std::string_view field) {
  const bool is_octal = static_cast<std::uint8_t>(field.front()) < 0x80;
  return is_octal ? parse_octal(field) : parse_base_256(field);
}

void check_sum(std::string_view block, const std::string& file, std::uint64_t offset) {
  std::int32_t unsigned_sum = 0;
  std::int32_t signed_sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) {  // known length and no branch: a few vector instructions
    unsigned_sum += static_cast<std::uint8_t>(block[i]);
    signed_sum += static_cast<std::int8_t>(block[i]);
  }
  for (const char byte : field(block, kTarChecksum)) {  // counts as spaces
    unsigned_sum += ' ' - static_cast<std::uint8_t>(byte);
    signed_sum += ' ' - static_cast<std::int8_t>(byte);
  }
  const auto stored = parse_octal(field(block, kTarChecksum));
  if (!stored) fail_tar(file, offset + kTarChecksum.begin, "expected the checksum of a header, found no octal number");
  const auto found = static_cast<std::int64_t>(*stored);
  if (found != unsigned_sum && found != signed_sum) {
    fail_tar(file, offset + kTarChecksum.begin,
             text("expected the checksum ", unsigned_sum, " of the header, found ", found));
  }
}

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
  // The shortest record has a space, a letter, the equals sign and the newline.
  if (error != std::errc{} || bytes > records.size() || bytes < digits + 4) return std::nullopt;
  if (records[digits] != ' ' || records[bytes - 1] != '\n') return std::nullopt;
  const std::string_view body = records.substr(digits + 1, bytes - digits - 2);
  const std::size_t equals = body.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  return Record{.keyword = body.substr(0, equals), .value = body.substr(equals + 1), .bytes = bytes};
}

}  // namespace

void fail_tar(const std::string& file, std::uint64_t offset, const std::string& expected_and_found) {
  throw EnvironmentError(text("Tar file '", file, "', byte offset ", offset, ": ", expected_and_found, "."));
}

TarHeader parse_tar_header(std::string_view block, const std::string& file, std::uint64_t offset) {
  check_sum(block, file, offset);
  const auto bytes = parse_number(field(block, kTarSize));
  if (!bytes) {
    fail_tar(file, offset + kTarSize.begin,
             "expected a size in octal or positive base-256 digits, found something else");
  }
  TarHeader header{.name = std::string{until_zero(field(block, kTarName))},
                   .bytes = *bytes,
                   .type = static_cast<TarType>(block[kTarType]),
                   .link = std::string{until_zero(field(block, kTarLink))}};
  const std::string_view prefix = until_zero(field(block, kTarPrefix));
  if (field(block, kTarMagic) == kTarPosixMagic && !prefix.empty()) header.name = text(prefix, "/", header.name);
  return header;
}

void parse_pax(std::string_view records, const std::string& file, std::uint64_t offset, PaxValues& values) {
  // Some programs pad the records with zeros.
  while (!records.empty() && records.front() != '\0') {
    const auto record = first_record(records);
    if (!record) {
      fail_tar(file, offset, "expected a record 'length keyword=value' of an extended header, found something else");
    }
    if (record->keyword == "path") values.path = record->value;
    if (record->keyword == "linkpath") values.link = record->value;
    if (record->keyword == "size") values.size = record->value;
    if (record->keyword.starts_with("GNU.sparse.")) {
      fail_tar(file, offset, "expected a file that is stored completely, found a sparse one. Pack it without --sparse");
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
