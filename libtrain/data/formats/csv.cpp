#include <libtrain/data/formats/csv.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/text_table.hpp>

namespace libtrain::data::detail {

namespace {

/// Finds and checks the rows of a CSV file that arrives in pieces.
///
/// States of a field: at its `start`; `plain`; `quoted`; `closed`, after a quote that ends it unless another quote
/// follows; `carriage_return`, after which only a line feed is allowed; `skipping`, after a fault, to the end of the
/// line.
class CsvScanner {
 public:
  /// Called with the offset and the line of the beginning of each row, the header included, once the row has been
  /// checked.
  using OnRow = std::function<void(std::uint64_t begin, std::uint64_t line)>;

  /// Called with a message for each malformed row but the header: throws, or returns to leave the row out.
  using OnFault = std::function<void(const std::string& message)>;

  /// `file` is for messages.
  CsvScanner(const std::string& file, const CsvOptions& options, OnRow on_row, OnFault on_fault)
      : file_(file), options_(options), on_row_(std::move(on_row)), on_fault_(std::move(on_fault)) {}

  /// The pieces of a file in order. Throws EnvironmentError for what leaves no row to go on with.
  void add(std::string_view piece);

  /// After the last piece.
  void finish();

  /// The number of fields of each row; 0 if there are no rows.
  std::size_t fields() const { return expected_fields_; }

  /// The beginning of the row that is not complete.
  std::uint64_t row_begin() const { return row_begin_; }

 private:
  enum class State { start, plain, quoted, closed, carriage_return, skipping };

  void take(char character);
  void take_outside_quotes(char character);
  void end_row();
  void begin_row();
  void skip_byte_order_mark(std::string_view& piece);
  void refuse_row(std::uint64_t offset, std::uint64_t line, const std::string& found);
  std::string message(std::uint64_t offset, std::uint64_t line, const std::string& found) const;
  [[noreturn]] void fail(std::uint64_t offset, std::uint64_t line, const std::string& found) const;

  const std::string& file_;
  const CsvOptions& options_;
  const OnRow on_row_;
  const OnFault on_fault_;
  State state_ = State::start;
  std::uint64_t offset_ = 0;  // of the current character
  std::uint64_t line_ = 1;
  std::uint64_t row_begin_ = 0;
  std::uint64_t row_line_ = 1;
  std::uint64_t quote_offset_ = 0;
  std::uint64_t quote_line_ = 1;
  std::size_t separators_ = 0;  // in the current row
  bool blank_ = true;           // the current row has no characters so far
  std::size_t expected_fields_ = 0;
};

/// Takes fields off the front of a row that a CsvScanner has checked.
class CsvFields {
 public:
  CsvFields(std::string_view row, const CsvOptions& options) : rest_(row), options_(options) {}

  /// The next field; std::nullopt after the last one.
  std::optional<std::string> next();

  /// The next field, in the memory of `field`; false after the last one.
  bool next(std::string& field);

 private:
  void quoted(std::string& field);

  std::string_view rest_;
  const CsvOptions& options_;
  bool over_ = false;
};

}  // namespace

void CsvScanner::add(std::string_view piece) {
  if (offset_ == 0) skip_byte_order_mark(piece);
  for (const char character : piece) {
    take(character);
    ++offset_;
  }
  if (offset_ > row_begin_ && offset_ - row_begin_ > kLongestRow) {
    fail(row_begin_, row_line_, text("a row of more than ", kLongestRow, " bytes"));
  }
}

void CsvScanner::finish() {
  if (state_ == State::quoted) fail(quote_offset_, quote_line_, "a quote that is not closed");
  if (state_ == State::carriage_return) refuse_row(offset_ - 1, line_, "a carriage return without a line feed");
  if (state_ != State::skipping) end_row();
}

void CsvScanner::take(char character) {
  switch (state_) {
    case State::start:
    case State::plain:
      take_outside_quotes(character);
      break;
    case State::quoted:
      if (character == options_.quote) state_ = State::closed;
      if (character == '\n') ++line_;
      break;
    case State::closed:
      if (character == options_.quote) {
        state_ = State::quoted;
      } else if (character == options_.separator || character == '\n' || character == '\r') {
        take_outside_quotes(character);
      } else {
        refuse_row(offset_, line_, "text after a closing quote");
      }
      break;
    case State::carriage_return:
      if (character != '\n') return refuse_row(offset_ - 1, line_, "a carriage return without a line feed");
      end_row();
      break;
    case State::skipping:
      if (character == '\n') begin_row();
      break;
  }
}

void CsvScanner::take_outside_quotes(char character) {
  if (character == '\n') {
    end_row();
  } else if (character == '\r') {
    state_ = State::carriage_return;
  } else if (character == options_.separator) {
    ++separators_;
    blank_ = false;
    state_ = State::start;
  } else if (character == options_.quote) {
    if (state_ == State::plain) return refuse_row(offset_, line_, "a quote in a field that does not begin with one");
    quote_offset_ = offset_;
    quote_line_ = line_;
    blank_ = false;
    state_ = State::quoted;
  } else {
    blank_ = false;
    state_ = State::plain;
  }
}

void CsvScanner::end_row() {
  if (!blank_) {
    const std::size_t fields = separators_ + 1;
    if (expected_fields_ == 0) expected_fields_ = fields;
    if (fields == expected_fields_) {
      on_row_(row_begin_, row_line_);
    } else {
      refuse_row(row_begin_, row_line_, text("a row of ", fields, " fields instead of ", expected_fields_));
    }
  }
  begin_row();
}

void CsvScanner::begin_row() {
  ++line_;
  row_begin_ = offset_ + 1;
  row_line_ = line_;
  separators_ = 0;
  blank_ = true;
  state_ = State::start;
}

void CsvScanner::skip_byte_order_mark(std::string_view& piece) {
  if (piece.starts_with("\xff\xfe") || piece.starts_with("\xfe\xff")) fail(0, 1, "UTF-16 (convert the file to UTF-8)");
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (!piece.starts_with(mark)) return;
  piece.remove_prefix(mark.size());
  offset_ = mark.size();
  row_begin_ = offset_;
}

void CsvScanner::refuse_row(std::uint64_t offset, std::uint64_t line, const std::string& found) {
  // Without its header, the row after it would be taken for the header.
  if (options_.header == CsvHeader::first_row && expected_fields_ == 0) fail(offset, line, found);
  on_fault_(message(offset, line, found));
  state_ = State::skipping;
}

std::string CsvScanner::message(std::uint64_t offset, std::uint64_t line, const std::string& found) const {
  return text("CSV file '", file_, "', line ", line, ", byte offset ", offset, ": expected RFC 4180, found ", found,
              ".");
}

void CsvScanner::fail(std::uint64_t offset, std::uint64_t line, const std::string& found) const {
  throw EnvironmentError(message(offset, line, found));
}

std::optional<std::string> CsvFields::next() {
  std::string field;
  return next(field) ? std::optional(std::move(field)) : std::nullopt;
}

bool CsvFields::next(std::string& field) {
  if (over_) return false;
  field.clear();
  if (options_.quote && rest_.starts_with(*options_.quote)) {
    quoted(field);
  } else {
    const std::array ends{options_.separator, '\r', '\n'};
    const std::size_t length = std::min(rest_.find_first_of(std::string_view{ends.data(), ends.size()}), rest_.size());
    field = rest_.substr(0, length);
    rest_.remove_prefix(length);
  }
  over_ = !rest_.starts_with(options_.separator);
  if (!over_) rest_.remove_prefix(1);
  return true;
}

void CsvFields::quoted(std::string& field) {
  const char quote = *options_.quote;
  rest_.remove_prefix(1);
  for (;;) {
    const std::size_t length = std::min(rest_.find(quote), rest_.size());
    field += rest_.substr(0, length);
    rest_.remove_prefix(std::min(length + 1, rest_.size()));
    if (!rest_.starts_with(quote)) return;
    field += quote;
    rest_.remove_prefix(1);
  }
}

}  // namespace libtrain::data::detail

namespace libtrain::data {

namespace {

constexpr char kLineFeed = '\n';
constexpr char kCarriageReturn = '\r';

void require_usable(const CsvOptions& options) {
  const auto is_line_end = [](char character) { return character == kLineFeed || character == kCarriageReturn; };
  const bool same = options.quote == options.separator;
  if (same || is_line_end(options.separator) || (options.quote && is_line_end(*options.quote))) {
    throw UsageError("The separator and the quote of a CSV file must differ from each other and from line ends.");
  }
}

std::vector<std::string> fields_of(std::string_view row, const CsvOptions& options) {
  detail::CsvFields fields{row, options};
  std::vector<std::string> result;
  while (auto field = fields.next()) result.push_back(std::move(*field));
  return result;
}

}  // namespace

CsvFile::CsvFile(std::shared_ptr<const File> file, const CsvOptions& options)
    : file_(std::move(file)), options_(options) {
  detail::require_file(file_.get(), "CSV file");
  require_usable(options_);
  std::vector<std::uint64_t> boundaries;
  detail::CsvScanner scanner{file_->name(), options_,
                             [&](std::uint64_t begin, std::uint64_t) { boundaries.push_back(begin); },
                             [](const std::string& message) { throw EnvironmentError(message); }};
  detail::for_each_piece(*file_, [&](std::string_view piece, std::uint64_t) { scanner.add(piece); });
  scanner.finish();
  boundaries.push_back(file_->size());
  if (options_.header == CsvHeader::none) {
    for (std::size_t column = 0; column < scanner.fields(); ++column) columns_.push_back(std::to_string(column));
  } else {
    if (boundaries.size() < 2) {
      throw EnvironmentError(text("CSV file '", file_->name(), "', line 1, byte offset ", file_->size(),
                                  ": expected a header, found the end of the file."));
    }
    columns_ = fields_of(detail::read_range(*file_, boundaries[0], boundaries[1] - boundaries[0]), options_);
    boundaries.erase(boundaries.begin());
  }
  rows_ = detail::RowOffsets{std::move(boundaries)};
}

std::size_t CsvFile::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found == columns_.end()) {
    throw UsageError(
        text("CSV file '", file_->name(), "' has no column '", name, "'; it has: ", join(columns_, ", "), "."));
  }
  if (std::find(found + 1, columns_.end(), name) != columns_.end()) {
    throw UsageError(text("CSV file '", file_->name(), "' has more than one column '", name, "'. Use its number."));
  }
  return static_cast<std::size_t>(found - columns_.begin());
}

std::string CsvFile::field(std::uint64_t row, std::size_t column) const {
  if (column >= columns_.size()) {
    throw UsageError(text("CSV file '", file_->name(), "' has no column ", column, "; it has ", columns_.size(), "."));
  }
  const std::string text_of_row = text_of(row);
  detail::CsvFields fields{text_of_row, options_};
  for (std::size_t skipped = 0; skipped < column; ++skipped) {
    if (!fields.next()) break;
  }
  auto field = fields.next();
  if (!field) {
    throw EnvironmentError(text("CSV file '", file_->name(), "', byte offset ", rows_[row].begin, ": expected ",
                                columns_.size(), " fields, found fewer: the file has changed."));
  }
  return std::move(*field);
}

std::vector<std::string> CsvFile::row(std::uint64_t row) const {
  return fields_of(text_of(row), options_);
}

std::string CsvFile::text_of(std::uint64_t row) const {
  const auto extent = rows_[row];
  return detail::read_range(*file_, extent.begin, extent.length);
}

void detail::for_each_csv_row(const File& file, const CsvOptions& options,
                              const std::function<void(std::span<std::string> fields, std::uint64_t line)>& visit,
                              const std::function<void(const std::string& message)>& refuse) {
  require_usable(options);
  std::string held;  // the file from `held_begin` on, up to the piece that arrived last
  std::uint64_t held_begin = 0;
  std::vector<std::string> fields;
  const auto take_row = [&](std::uint64_t begin, std::uint64_t line) {
    CsvFields in_row{std::string_view(held).substr(begin - held_begin), options};
    std::size_t count = 0;
    for (;; ++count) {
      if (count == fields.size()) fields.emplace_back();
      if (!in_row.next(fields[count])) break;
    }
    visit(std::span(fields).first(count), line);
  };
  CsvScanner scanner{file.name(), options, take_row, refuse};
  for_each_piece(file, [&](std::string_view piece, std::uint64_t) {
    held.erase(0, scanner.row_begin() - held_begin);
    held_begin = scanner.row_begin();
    held += piece;
    scanner.add(piece);
  });
  scanner.finish();
}

}  // namespace libtrain::data
