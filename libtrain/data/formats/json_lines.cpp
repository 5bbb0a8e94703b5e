#include <libtrain/data/formats/json_lines.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <simdjson.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/file_buffer.hpp>
#include <libtrain/data/formats/detail/json.hpp>

namespace libtrain::data {

namespace {

namespace ondemand = simdjson::ondemand;
using detail::JsonFault;
using detail::kJsonSpace;

// Where lines that hold something begin, from their first character on, and where the file ends.
std::vector<std::uint64_t> boundaries_of(const File& file) {
  std::vector<std::uint64_t> boundaries;
  bool within = false;
  detail::for_each_piece(file, [&](std::string_view piece, std::uint64_t offset) {
    std::size_t position = 0;
    while (position < piece.size()) {
      const std::size_t found = within ? piece.find('\n', position) : piece.find_first_not_of(kJsonSpace, position);
      if (found == std::string_view::npos) break;
      if (!within) boundaries.push_back(offset + found);
      within = !within;
      position = found;
    }
    if (within && offset + piece.size() - boundaries.back() > detail::kLongestRow) {
      throw EnvironmentError(text("JSON lines file '", file.name(), "', byte offset ", boundaries.back(),
                                  ": expected a line of at most ", detail::kLongestRow, " bytes, found a longer one."));
    }
  });
  boundaries.push_back(file.size());
  return boundaries;
}

PaddedBuffer read_row(const File& file, detail::RowOffsets::Extent row) {
  PaddedBuffer buffer{row.length};
  file.read_at(row.begin, std::as_writable_bytes(std::span{buffer.data(), buffer.size()}));
  return buffer;
}

template <typename Visit>
void visit_members(ondemand::document& document, std::string_view line, std::string_view column, const Visit& visit) {
  ondemand::object object;
  if (document.get_object().get(object) != simdjson::SUCCESS) {
    throw JsonFault{.at = line.data(),
                    .expected = line.starts_with('{') ? "an object that ends on the line" : "an object"};
  }
  bool found = false;
  detail::for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
    if (key != column) return;
    visit(value);
    found = true;
  });
  if (!found) throw JsonFault{.at = line.data(), .expected = text("an object with the key '", column, "'")};
  if (const char* behind = detail::json_location(document); behind != nullptr) {
    throw JsonFault{.at = behind, .expected = "nothing behind the object"};
  }
}

// Calls visit(value) with the row's value under the key `column`.
template <typename Visit>
void visit_field(const File& file, detail::RowOffsets::Extent row, std::string_view column, const Visit& visit) {
  const PaddedBuffer buffer = read_row(file, row);
  const std::string_view line = buffer.text();
  try {
    ondemand::parser parser;
    ondemand::document document;
    if (const auto error = parser.iterate(buffer.data(), buffer.size(), buffer.allocated()).get(document);
        error != simdjson::SUCCESS) {
      throw detail::structural_fault(error, line);
    }
    try {
      visit_members(document, line, column, visit);
    } catch (JsonFault& fault) {
      if (fault.at == nullptr) fault.at = detail::json_location(document);
      throw;
    }
  } catch (const JsonFault& fault) {
    const std::size_t position =
        fault.at == nullptr ? line.size() : std::min(static_cast<std::size_t>(fault.at - line.data()), line.size());
    throw EnvironmentError(text("JSON lines file '", file.name(), "', line ", detail::line_of(file, row.begin),
                                ", byte offset ", row.begin + position, ": expected ", fault.expected, ", found ",
                                detail::json_excerpt(line.substr(position), "the end of the line"), "."));
  }
}

std::string text_of(ondemand::value& value, std::string_view column) {
  const char* const begin = detail::json_begin(value);
  if (*begin == '"') return std::string{detail::json_string(value, column)};
  if (*begin == 't' || *begin == 'f') return detail::json_flag(value, column) ? "true" : "false";
  std::string_view token = value.raw_json_token();
  token = token.substr(0, token.find_last_not_of(kJsonSpace) + 1);
  if (detail::json_number_length(token) != token.size()) {
    throw detail::data_fault(text("a string, a number, true or false for '", column, "'"), begin);
  }
  return std::string{token};
}

}  // namespace

JsonLines::JsonLines(std::shared_ptr<const File> file)
    : file_(std::move(file)), rows_(boundaries_of(detail::require_file(file_.get(), "JSON lines file"))) {}

std::string JsonLines::field(std::uint64_t row, std::string_view column) const {
  std::string field;
  visit_field(*file_, rows_[row], column, [&](ondemand::value& value) { field = text_of(value, column); });
  return field;
}

double JsonLines::number(std::uint64_t row, std::string_view column) const {
  double number = 0;
  visit_field(*file_, rows_[row], column, [&](ondemand::value& value) { number = detail::json_number(value, column); });
  return number;
}

std::int64_t JsonLines::integer(std::uint64_t row, std::string_view column) const {
  std::int64_t number = 0;
  visit_field(*file_, rows_[row], column,
              [&](ondemand::value& value) { number = detail::json_integer(value, column); });
  return number;
}

std::string JsonLines::line(std::uint64_t row) const {
  const PaddedBuffer buffer = read_row(*file_, rows_[row]);
  const std::string_view line = buffer.text();
  return std::string{line.substr(0, line.find_last_not_of(kJsonSpace) + 1)};
}

}  // namespace libtrain::data
