#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <libtrain/base/detail/protobuf_wire.hpp>

namespace libtrain::data::detail {

using libtrain::detail::WireReader;
using libtrain::detail::WireType;
using libtrain::detail::WireWriter;

/// A message of protocol buffers in a local file with a checksum: some bytes that identify the format, the CRC-32C of
/// the message as a little-endian 32-bit number, the message.
class SealedMessage {
 public:
  /// The message in the file `path`; std::nullopt if the file does not exist. Throws EnvironmentError that names the
  /// file and the byte offset if it cannot be read, is longer than `limit_bytes`, does not begin with `format`, or has
  /// a wrong checksum.
  static std::optional<SealedMessage> read(const std::string& path, std::string_view format, std::uint64_t limit_bytes);

  /// A reader at the beginning of the message. This object must outlive the reader and must not be moved.
  WireReader reader() const { return {std::string_view{file_}.substr(begin_), source_}; }

 private:
  SealedMessage(std::string file, std::size_t begin, std::string source)
      : file_(std::move(file)), begin_(begin), source_(std::move(source)) {}

  std::string file_;
  std::size_t begin_;  // of the message in file_
  std::string source_;
};

/// Writes such a file, complete or not at all, and creates its folders. Any number of processes may do so at the same
/// time. Throws EnvironmentError if that fails.
void write_sealed_message(const std::string& path, std::string_view format, std::string_view message);

}  // namespace libtrain::data::detail
