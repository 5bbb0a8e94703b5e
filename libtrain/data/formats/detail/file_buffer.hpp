#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// A file that is `bytes`: what reads a File reads a buffer.
std::unique_ptr<const File> file_in_memory(std::string name, std::string bytes);

/// Small pieces of a file from front to back with few reads, for building an index: a read takes more than was asked
/// for, twice as much as the one before as long as that pays. Uses at most 4 MiB, and no more than the file is long.
/// Used by one thread at a time.
class ReadWindow {
 public:
  /// `file` must outlive the window.
  explicit ReadWindow(const File& file) : file_(file) {}

  ReadWindow(const ReadWindow&) = delete;  // views of the buffer are handed out
  ReadWindow& operator=(const ReadWindow&) = delete;

  /// The `count` bytes from `offset` on, valid until the next call; the caller has checked that the file holds them.
  /// Throws as File::read_at; the window cannot be used after that.
  std::string_view at(std::uint64_t offset, std::size_t count);

 private:
  void move_to(std::uint64_t offset, std::size_t count);

  const File& file_;
  std::string buffer_;
  std::uint64_t begin_ = 0;  // of the buffer in the file
  std::size_t read_bytes_ = 0;
};

}  // namespace libtrain::data::detail
