#include <libtrain/data/formats/text_table.hpp>

#include <algorithm>
#include <cstddef>
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

void for_each_line(const File& file, const std::function<void(std::string_view line, std::uint64_t number)>& visit) {
  std::string begun;  // of the line that is not complete
  std::uint64_t number = 1;
  const auto finish_line = [&](std::string_view line) {
    visit(line.substr(0, line.size() - (line.ends_with('\r') ? 1 : 0)), number++);
  };
  for_each_piece(file, [&](std::string_view piece, std::uint64_t offset) {
    if (offset == 0 && (piece.starts_with("\xff\xfe") || piece.starts_with("\xfe\xff"))) {
      throw EnvironmentError(text("File '", file.name(), "', line 1: expected UTF-8, found UTF-16. Convert the file."));
    }
    if (offset == 0 && piece.starts_with("\xef\xbb\xbf")) piece.remove_prefix(3);
    for (std::size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
      begun += piece.substr(0, end);
      finish_line(begun);
      begun.clear();
      piece.remove_prefix(end + 1);
    }
    begun += piece;
    if (begun.size() > kLongestRow) {
      throw EnvironmentError(text("File '", file.name(), "', line ", number, ": expected a line of at most ",
                                  kLongestRow, " bytes, found a longer one. Check the format of the file."));
    }
  });
  if (!begun.empty()) finish_line(begun);
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
