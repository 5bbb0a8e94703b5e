#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// Rows with named columns of text, read in any order: what CSV files and files of JSON lines have in common. Any
/// thread may read, several at once.
class TextTable {
 public:
  virtual ~TextTable() = default;

  /// How many rows there are, a header not counted.
  virtual std::uint64_t size() const = 0;

  /// The text of one field. Throws UsageError for a row that is not below size(); where the table has no such column
  /// UsageError, or EnvironmentError where only that row lacks it; EnvironmentError where it cannot be read.
  virtual std::string field(std::uint64_t row, std::string_view column) const = 0;
};

}  // namespace libtrain::data

namespace libtrain::data::detail {

/// A longer row is no row of a table, but a file of another kind, or one of zeros: it would be taken into memory whole.
constexpr std::uint64_t kLongestRow = std::uint64_t{64} << 20;

/// Where the rows of a file begin, and where the last one ends: 8 bytes a row.
class RowOffsets {
 public:
  /// A row of the file.
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  ///< with what ends it, and with blank lines behind it
  };

  RowOffsets() = default;

  /// `boundaries`: where each row begins, and last where the file ends.
  explicit RowOffsets(std::vector<std::uint64_t> boundaries) : boundaries_(std::move(boundaries)) {
    boundaries_.shrink_to_fit();
  }

  std::uint64_t size() const { return boundaries_.size() - 1; }

  /// Throws UsageError for a row that is not below size().
  Extent operator[](std::uint64_t row) const;

 private:
  std::vector<std::uint64_t> boundaries_ = {0};
};

/// Calls visit(piece, its offset) for one piece of the file after the other, from the start to the end.
void for_each_piece(const File& file, const std::function<void(std::string_view piece, std::uint64_t offset)>& visit);

/// The number, from 1 on, of the line that byte `offset` lies in: reads the file up to there.
std::uint64_t line_of(const File& file, std::uint64_t offset);

}  // namespace libtrain::data::detail

namespace libtrain::data {

/// Checks UTF-8 that comes in pieces, cut anywhere: no overlong forms, no surrogates, nothing above U+10FFFF
/// (The Unicode Standard 15.0, table 3-7).
class Utf8Check {
 public:
  /// The position in `piece` of the first byte that may not stand where it stands; nothing where all may.
  /// After a position was returned the object is done.
  std::optional<std::size_t> add(std::string_view piece);

  /// Whether the text so far ends with a whole character.
  bool complete() const { return missing_ == 0; }

 private:
  bool begin_character(std::uint8_t byte);

  int missing_ = 0;  // bytes that the character begun still needs
  std::uint8_t lowest_ = 0x80;
  std::uint8_t highest_ = 0xbf;  // of the next one of them
};

}  // namespace libtrain::data
