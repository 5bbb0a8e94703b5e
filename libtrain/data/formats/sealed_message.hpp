#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <libtrain/data/formats/protobuf_wire.hpp>

namespace libtrain::data::detail {

/// A message of protocol buffers read from a local file in which damage is noticed: some bytes that name its format,
/// the CRC-32C of the message as a little-endian 32-bit number, the message.
class SealedMessage {
 public:
  /// The message in the file `path`; nothing where there is no such file. Throws EnvironmentError that names the file
  /// and the byte offset where it cannot be read, is longer than `limit_bytes`, does not begin with `format`, or where
  /// the checksum is another.
  static std::optional<SealedMessage> read(const std::string& path, std::string_view format, std::uint64_t limit_bytes);

  /// Reads the message from its beginning. This object must outlive the reader and stay where it is.
  WireReader reader() const { return {std::string_view{file_}.substr(begin_), source_}; }

 private:
  SealedMessage(std::string file, std::size_t begin, std::string source)
      : file_(std::move(file)), begin_(begin), source_(std::move(source)) {}

  std::string file_;
  std::size_t begin_;  // of the message in file_
  std::string source_;
};

/// Writes such a file, complete or not at all, and makes the folders that it lies in. Any number of processes may do so
/// at the same time. Throws EnvironmentError where that fails.
void write_sealed_message(const std::string& path, std::string_view format, std::string_view message);

}  // namespace libtrain::data::detail
