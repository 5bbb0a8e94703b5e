#include <libtrain/checkpoint/checkpoint_file_writer.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/folder.hpp>

namespace libtrain {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kStartBytes = std::size_t{8} << 20;

}  // namespace

CheckpointFileWriter::CheckpointFileWriter(const std::filesystem::path& root, const std::string& begun,
                                           std::string name)
    : path_(root / begun / name) {
  if (!is_checkpoint_file_name(name)) {
    throw UsageError(
        text("'", name, "' cannot be the name of a checkpoint's file. Use letters, digits, '.', '_' and '-'."));
  }
  descriptor_ = detail::Folder{root}.inside(begun).create_file(name);
  entry_.name = std::move(name);
}

void CheckpointFileWriter::write(std::string_view bytes) {
  entry_.crc32c = append(bytes, entry_.crc32c);
}

void CheckpointFileWriter::write_tensor(std::string name, std::string_view bytes) {
  const auto offset = entry_.bytes;
  const auto crc = append(bytes, 0);
  entry_.crc32c = detail::combine_crc32c(entry_.crc32c, crc, bytes.size());
  entry_.tensors.push_back({.name = std::move(name), .offset = offset, .bytes = bytes.size(), .crc32c = crc});
}

CheckpointFile CheckpointFileWriter::finish() {
  flush();
  detail::sync_and_close(std::move(descriptor_), path_);
  return std::move(entry_);
}

// Returns `crc` extended by the bytes. Piece by piece, so that the kernel copies what the checksum has just brought
// into the cache.
std::uint32_t CheckpointFileWriter::append(std::string_view bytes, std::uint32_t crc) {
  require_no_error();
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPieceBytes))) {
    const auto piece = bytes.substr(0, kPieceBytes);
    crc = detail::extend_crc32c(crc, piece);
    entry_.bytes += piece.size();
    if (buffer_.size() + piece.size() > kPieceBytes) flush();
    if (piece.size() == kPieceBytes) {
      write_through(piece);
    } else {
      buffer_ += piece;
    }
  }
  return crc;
}

void CheckpointFileWriter::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void CheckpointFileWriter::write_through(std::string_view bytes) {
  require_no_error();
  if (detail::write_all(descriptor_.get(), bytes) < bytes.size()) {
    error_ = errno;
    require_no_error();
  }
  start_storing(bytes.size());
}

// The disk works while the next bytes are summed and copied; otherwise it would wait for the call that syncs the file,
// which reports all errors.
void CheckpointFileWriter::start_storing(std::size_t written) {
  not_started_ += written;
  if (not_started_ < kStartBytes) return;
  ::sync_file_range(descriptor_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  not_started_ = 0;
}

void CheckpointFileWriter::require_no_error() const {
  if (error_ != 0) detail::throw_checkpoint_error("write to the file", path_, error_);
}

std::vector<CheckpointFile> write_checkpoint_files(const std::filesystem::path& root, const std::string& begun,
                                                   std::vector<CheckpointPart> parts) {
  std::vector<CheckpointFile> entries;
  for (auto& part : parts) {
    const auto write = std::exchange(part.write, nullptr);
    CheckpointFileWriter file{root, begun, std::move(part.name)};
    write(file);
    entries.push_back(file.finish());
  }
  return entries;
}

}  // namespace libtrain
