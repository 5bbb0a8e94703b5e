#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/checkpoint/checkpoint_manifest.hpp>

namespace libtrain {

/// Writes one file of a checkpoint that is being written, on any rank. Bytes go to the file as they come, through a
/// small buffer if they come in small pieces; nothing else is copied.
///
/// Errors are EnvironmentError that name the file and the system's reason; after one all later calls fail. Used by one
/// thread at a time.
class CheckpointFileWriter {
 public:
  /// Creates the file `name` in the folder `root`/`begun`, where `begun` is what CheckpointWriter::begin() returned.
  /// Throws UsageError for a name that is_checkpoint_file_name() does not allow.
  CheckpointFileWriter(const std::filesystem::path& root, const std::string& begun, std::string name);

  CheckpointFileWriter(const CheckpointFileWriter&) = delete;  // owns the open file
  CheckpointFileWriter& operator=(const CheckpointFileWriter&) = delete;

  /// Closes a file that was not finished. It remains until the checkpoint is abandoned.
  ~CheckpointFileWriter() = default;

  void write(std::string_view bytes);

  /// As write(), and adds a tensor of these bytes to the file's entry.
  void write_tensor(std::string name, std::string_view bytes);

  /// Stores all bytes on the disk, closes the file, and returns its entry for the manifest. Must be the last call.
  CheckpointFile finish();

 private:
  std::uint32_t append(std::string_view bytes, std::uint32_t crc);
  void flush();
  void write_through(std::string_view bytes);
  void require_no_error() const;
  void start_storing(std::size_t written);

  std::filesystem::path path_;
  detail::FileDescriptor descriptor_;
  std::string buffer_ = {};
  std::size_t not_started_ = 0;  // bytes that were written since the disk was last told to store
  CheckpointFile entry_ = {};
  int error_ = 0;  // the first one
};

/// A file to write: `write` is called once, with the file, and may own the bytes that it writes.
struct CheckpointPart {
  std::string name = {};
  std::function<void(CheckpointFileWriter& file)> write = {};
};

/// Writes and syncs the files one after the other, and returns their entries. Each part is destroyed, with the bytes
/// that it owns, before the next is written. Throws as CheckpointFileWriter, and what `write` throws.
std::vector<CheckpointFile> write_checkpoint_files(const std::filesystem::path& root, const std::string& begun,
                                                   std::vector<CheckpointPart> parts);

}  // namespace libtrain
