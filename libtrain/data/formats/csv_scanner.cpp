#include <libtrain/data/formats/csv_scanner.hpp>

#include <algorithm>
#include <array>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/row_offsets.hpp>

namespace libtrain::data::detail {

void CsvScanner::add(std::string_view piece) {
  if (offset_ == 0) skip_byte_order_mark(piece);
  if (options_.encoding == CsvEncoding::utf8) check_encoding(piece);
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
  if (state_ == State::carriage_return) fail(offset_ - 1, line_, "a carriage return without a line feed");
  if (!encoding_.complete()) fail(offset_, line_, "the end of the file within a UTF-8 character");
  const std::uint64_t end = offset_;
  end_row();
  boundaries_.push_back(end);
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
        fail(offset_, line_, "text behind a closing quote");
      }
      break;
    case State::carriage_return:
      if (character != '\n') fail(offset_ - 1, line_, "a carriage return without a line feed");
      end_row();
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
    if (state_ == State::plain) fail(offset_, line_, "a quote within a field that does not begin with one");
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
    if (fields != expected_fields_) {
      fail(row_begin_, row_line_, text("a row of ", fields, " fields instead of ", expected_fields_));
    }
    boundaries_.push_back(row_begin_);
  }
  ++line_;
  row_begin_ = offset_ + 1;
  row_line_ = line_;
  separators_ = 0;
  blank_ = true;
  state_ = State::start;
}

void CsvScanner::skip_byte_order_mark(std::string_view& piece) {
  if (piece.starts_with("\xff\xfe") || piece.starts_with("\xfe\xff")) fail(0, 1, "UTF-16; convert it to UTF-8 first");
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (!piece.starts_with(mark)) return;
  piece.remove_prefix(mark.size());
  offset_ = mark.size();
  row_begin_ = offset_;
}

void CsvScanner::check_encoding(std::string_view piece) {
  const auto position = encoding_.add(piece);
  if (!position) return;
  const auto before = piece.substr(0, *position);
  const auto lines = static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
  fail(offset_ + *position, line_ + lines, "a byte that UTF-8 does not have there");
}

void CsvScanner::fail(std::uint64_t offset, std::uint64_t line, const std::string& found) const {
  throw EnvironmentError(
      text("CSV file '", file_, "', line ", line, ", byte offset ", offset, ": expected RFC 4180, found ", found, "."));
}

std::optional<std::string> CsvFields::next() {
  if (over_) return std::nullopt;
  std::string field;
  if (options_.quote && rest_.starts_with(*options_.quote)) {
    field = quoted();
  } else {
    const std::array ends{options_.separator, '\r', '\n'};
    const std::size_t length = std::min(rest_.find_first_of(std::string_view{ends.data(), ends.size()}), rest_.size());
    field = rest_.substr(0, length);
    rest_.remove_prefix(length);
  }
  over_ = !rest_.starts_with(options_.separator);
  if (!over_) rest_.remove_prefix(1);
  return field;
}

std::string CsvFields::quoted() {
  const char quote = *options_.quote;
  std::string field;
  rest_.remove_prefix(1);
  for (;;) {
    const std::size_t length = std::min(rest_.find(quote), rest_.size());
    field += rest_.substr(0, length);
    rest_.remove_prefix(std::min(length + 1, rest_.size()));
    if (!rest_.starts_with(quote)) return field;
    field += quote;
    rest_.remove_prefix(1);
  }
}

}  // namespace libtrain::data::detail
