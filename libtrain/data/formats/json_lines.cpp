#include <libtrain/data/formats/json_lines.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <simdjson.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/json.hpp>

namespace libtrain::data {

namespace {

namespace ondemand = simdjson::ondemand;
using detail::JsonFault;
using detail::kJsonSpace;

// The offsets of the first characters of lines that are not blank, and the end of the file.
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

simdjson::padded_string read_row(const File& file, detail::RowOffsets::Extent row) {
  return detail::read_json_text(file, row.begin, row.length);
}

void visit_members(ondemand::document& document, std::string_view line, std::string_view column,
                   const std::function<void(ondemand::value&)>& visit) {
  ondemand::object object;
  if (document.get_object().get(object) != simdjson::SUCCESS) {
    throw JsonFault{line.data(), line.starts_with('{') ? "an object that ends on the line" : "an object"};
  }
  bool found = false;
  detail::for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
    if (key != column) return;
    visit(value);
    found = true;
  });
  if (!found) throw JsonFault{line.data(), text("an object with the key '", column, "'")};
}

// Calls visit(value) with the row's value under the key `column`.
void visit_field(const File& file, detail::RowOffsets::Extent row, std::string_view column,
                 const std::function<void(ondemand::value&)>& visit) {
  const simdjson::padded_string json = read_row(file, row);
  const std::string_view line = json;
  try {
    detail::parse_json(json, [&](ondemand::document& document) { visit_members(document, line, column, visit); });
  } catch (const JsonFault& fault) {
    const auto position = std::min(static_cast<std::size_t>(fault.at - line.data()), line.size());
    throw EnvironmentError(text("JSON lines file '", file.name(), "', line ", detail::line_of(file, row.begin),
                                ", byte offset ", row.begin + position, ": expected ", fault.expected, ", found ",
                                detail::json_excerpt(line.substr(position), "the end of the line"), "."));
  }
}

}  // namespace

JsonLines::JsonLines(std::shared_ptr<const File> file)
    : file_(std::move(file)), rows_(boundaries_of(detail::require_file(file_.get(), "JSON lines file"))) {}

std::string JsonLines::field(std::uint64_t row, std::string_view column) const {
  std::string field;
  visit_field(*file_, rows_[row], column, [&](ondemand::value& value) { field = detail::json_text(value, column); });
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
  const simdjson::padded_string json = read_row(*file_, rows_[row]);
  const std::string_view line = json;
  return std::string{line.substr(0, line.find_last_not_of(kJsonSpace) + 1)};
}

}  // namespace libtrain::data
