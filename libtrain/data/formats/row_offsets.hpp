#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/data/storage/file.hpp>

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
