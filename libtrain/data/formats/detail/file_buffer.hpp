#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// Reads small pieces of a file from front to back with few reads, to build an index: a read takes more bytes than
/// requested, twice as many as the previous read while that pays. Uses at most 4 MiB, and at most the size of the file.
/// Used by one thread at a time.
class ReadWindow {
 public:
  /// `file` must outlive the window.
  explicit ReadWindow(const File& file) : file_(file) {}

  ReadWindow(const ReadWindow&) = delete;  // callers have views of the buffer
  ReadWindow& operator=(const ReadWindow&) = delete;

  /// The `count` bytes from `offset` on, valid until the next call; the caller has checked that they exist. Throws as
  /// File::read_at; the window must not be used after that.
  std::string_view at(std::uint64_t offset, std::size_t count);

 private:
  void move_to(std::uint64_t offset, std::size_t count);

  const File& file_;
  std::string buffer_;
  std::uint64_t begin_ = 0;  // of the buffer in the file
  std::size_t read_bytes_ = 0;
};

}  // namespace libtrain::data::detail
