#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// Bytes with zeros behind them that may be read too: a parser that loads several bytes at once needs no check at the
/// end. simdjson asks for as many.
class PaddedBuffer {
 public:
  static constexpr std::size_t kPadding = 64;

  PaddedBuffer() : PaddedBuffer(0) {}

  /// `size` bytes of any value.
  explicit PaddedBuffer(std::size_t size);

  char* data() { return bytes_.get(); }
  const char* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::string_view text() const { return {data(), size_}; }

  /// Bytes that may be read from data() on.
  std::size_t allocated() const { return size_ + kPadding; }

 private:
  std::size_t size_;
  std::unique_ptr<char[]> bytes_;
};

/// A file that is `bytes`: what reads a File reads a buffer.
std::unique_ptr<const File> file_in_memory(std::string name, std::string bytes);

}  // namespace libtrain::data
