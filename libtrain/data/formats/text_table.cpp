#include <libtrain/data/formats/text_table.hpp>

#include <algorithm>
#include <span>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint64_t kPieceBytes = 1 << 20;

}  // namespace

RowOffsets::Extent RowOffsets::operator[](std::uint64_t row) const {
  if (row >= size()) throw UsageError(text("Row ", row, " was requested, but there are ", size(), " rows."));
  return {.begin = boundaries_[row], .length = boundaries_[row + 1] - boundaries_[row]};
}

void for_each_piece(const File& file, const std::function<void(std::string_view piece, std::uint64_t offset)>& visit) {
  const std::uint64_t size = file.size();
  std::string piece(std::min(size, kPieceBytes), '\0');
  for (std::uint64_t offset = 0; offset < size; offset += piece.size()) {
    piece.resize(std::min(size - offset, kPieceBytes));
    file.read_at(offset, std::as_writable_bytes(std::span{piece.data(), piece.size()}));
    visit(piece, offset);
  }
}

std::uint64_t line_of(const File& file, std::uint64_t offset) {
  std::uint64_t line = 1;
  for_each_piece(file, [&](std::string_view piece, std::uint64_t begin) {
    if (begin >= offset) return;
    const auto before = piece.substr(0, offset - begin);
    line += static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
  });
  return line;
}

}  // namespace libtrain::data::detail
