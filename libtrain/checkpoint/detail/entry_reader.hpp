#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/checkpoint/checkpoint_manifest.hpp>
#include <libtrain/checkpoint/detail/folder.hpp>

namespace libtrain::detail {

/// Throws CheckpointDamagedError: "The checkpoint file '`file`' `what`. Use another checkpoint."
[[noreturn]] void throw_checkpoint_damage(const std::filesystem::path& file, const std::string& what);

/// An open file of a checkpoint, of the length that its entry has. It can be read even after the checkpoint has been
/// removed.
class EntryReader {
 public:
  /// Throws CheckpointDamagedError if the file is missing, or is not a regular file of this length, and
  /// EnvironmentError if it cannot be opened. The folder and the entry are not used later.
  EntryReader(const Folder& folder, const CheckpointFile& entry);

  const std::filesystem::path& path() const { return path_; }

  /// Throws CheckpointDamagedError if the file was shortened, and EnvironmentError.
  void read(std::uint64_t offset, char* to, std::size_t count) const;

  /// The CRC-32C of a part of the file, which is read through `buffer`. Throws as read().
  std::uint32_t checksum(std::uint64_t offset, std::uint64_t bytes, std::string& buffer) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace libtrain::detail
