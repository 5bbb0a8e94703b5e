#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// Maximum length of a row, which is read into memory: a longer one is a file of another format, or of zeros.
constexpr std::uint64_t kLongestRow = std::uint64_t{64} << 20;

/// The offsets of the rows of a file and the end of the last one: 8 bytes per row.
class RowOffsets {
 public:
  /// The place of a row in the file.
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  ///< including its line end and blank lines after it
  };

  RowOffsets() = default;

  /// `boundaries`: the beginning of each row, and then the end of the file.
  explicit RowOffsets(std::vector<std::uint64_t> boundaries) : boundaries_(std::move(boundaries)) {
    boundaries_.shrink_to_fit();
  }

  std::uint64_t size() const { return boundaries_.size() - 1; }

  /// Throws UsageError for a row that is not below size().
  Extent operator[](std::uint64_t row) const;

 private:
  std::vector<std::uint64_t> boundaries_ = {0};
};

/// Calls visit(piece, its offset) for consecutive pieces of the file, from the beginning to the end.
void for_each_piece(const File& file, const std::function<void(std::string_view piece, std::uint64_t offset)>& visit);

/// Calls visit(line, its number from 1 on) for the lines of the file, without their line ends (LF or CRLF), in one
/// pass. A byte order mark is skipped. Throws EnvironmentError, which names file and line, for UTF-16 and for a line of
/// more than kLongestRow bytes.
void for_each_line(const File& file, const std::function<void(std::string_view line, std::uint64_t number)>& visit);

/// The number, from 1 on, of the line that contains byte `offset`. Reads the file up to there.
std::uint64_t line_of(const File& file, std::uint64_t offset);

}  // namespace libtrain::data::detail
