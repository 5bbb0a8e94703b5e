#include <libtrain/data/formats/detail/file_buffer.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace libtrain::data::detail {

namespace {

// A local disk serves the smallest read immediately; for the largest, the latency of a remote store is small compared
// to its transfer time.
constexpr std::size_t kSmallestRead = std::size_t{64} << 10;
constexpr std::size_t kLargestRead = std::size_t{4} << 20;

}  // namespace

std::string_view ReadWindow::at(std::uint64_t offset, std::size_t count) {
  if (offset < begin_ || offset + count > begin_ + buffer_.size()) move_to(offset, count);
  return std::string_view{buffer_}.substr(static_cast<std::size_t>(offset - begin_), count);
}

void ReadWindow::move_to(std::uint64_t offset, std::size_t count) {
  // If entries are longer than the window, most of a long read would be discarded.
  const bool close_by = offset >= begin_ && offset <= begin_ + buffer_.size() + kSmallestRead;
  read_bytes_ = close_by ? std::clamp(2 * read_bytes_, kSmallestRead, kLargestRead) : kSmallestRead;
  const std::uint64_t left = file_.size() - offset;
  buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(std::max(read_bytes_, count), left)));
  begin_ = offset;
  file_.read_at(offset, std::as_writable_bytes(std::span{buffer_}));
}

}  // namespace libtrain::data::detail
