#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/data/formats/csv.hpp>
#include <libtrain/data/formats/utf8_check.hpp>

namespace libtrain::data::detail {

/// Finds the rows of a CSV file that comes in pieces, and checks them.
///
/// States of a field: at its `start`; `plain`; `quoted`; `closed`, which is behind a quote that ends it unless another
/// one follows; `carriage_return`, behind which only a line feed may come.
class CsvScanner {
 public:
  /// `file` is for messages.
  CsvScanner(const std::string& file, const CsvOptions& options) : file_(file), options_(options) {}

  /// The pieces of a file in order. Throws EnvironmentError.
  void add(std::string_view piece);

  /// After the last piece.
  void finish();

  /// Where rows begin, the header's included, and where the file ends. Once, after finish().
  std::vector<std::uint64_t> take_boundaries() { return std::move(boundaries_); }

  /// Fields of each row; 0 where there is none.
  std::size_t fields() const { return expected_fields_; }

 private:
  enum class State { start, plain, quoted, closed, carriage_return };

  void take(char character);
  void take_outside_quotes(char character);
  void end_row();
  void skip_byte_order_mark(std::string_view& piece);
  void check_encoding(std::string_view piece);
  [[noreturn]] void fail(std::uint64_t offset, std::uint64_t line, const std::string& found) const;

  const std::string& file_;
  const CsvOptions& options_;
  State state_ = State::start;
  std::uint64_t offset_ = 0;  // of the character being taken
  std::uint64_t line_ = 1;
  std::uint64_t row_begin_ = 0;
  std::uint64_t row_line_ = 1;
  std::uint64_t quote_offset_ = 0;
  std::uint64_t quote_line_ = 1;
  std::size_t separators_ = 0;  // in the present row
  bool blank_ = true;           // so far, the present row is nothing but a line end
  std::size_t expected_fields_ = 0;
  std::vector<std::uint64_t> boundaries_;
  Utf8Check encoding_;
};

/// Takes fields off the front of a row that a CsvScanner has found to be well formed.
class CsvFields {
 public:
  CsvFields(std::string_view row, const CsvOptions& options) : rest_(row), options_(options) {}

  /// The next field; nothing behind the last one.
  std::optional<std::string> next();

 private:
  std::string quoted();

  std::string_view rest_;
  const CsvOptions& options_;
  bool over_ = false;
};

}  // namespace libtrain::data::detail
