#include <libtrain/checkpoint/detail/entry_reader.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// Of the second-level cache, so that the checksum reads what the kernel has just copied.
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

}  // namespace

void throw_checkpoint_damage(const std::filesystem::path& file, const std::string& what) {
  throw CheckpointDamagedError(text("The checkpoint file '", file.string(), "' ", what, ". Use another checkpoint."));
}

EntryReader::EntryReader(const Folder& folder, const CheckpointFile& entry)
    : path_(folder.path() / entry.name), file_(folder.open_file(entry.name, O_RDONLY | O_NONBLOCK)) {
  if (!file_.is_open() && errno == ENOENT) throw_checkpoint_damage(path_, "is missing");
  if (!file_.is_open()) throw_checkpoint_error("open the file", path_, errno);
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) throw_checkpoint_error("examine the file", path_, errno);
  if (!S_ISREG(status.st_mode)) throw_checkpoint_damage(path_, "is not a regular file");
  if (std::cmp_not_equal(status.st_size, entry.bytes)) {
    throw_checkpoint_damage(path_, text("has ", status.st_size, " bytes; it was written with ", entry.bytes));
  }
}

void EntryReader::read(std::uint64_t offset, char* to, std::size_t count) const {
  for (std::size_t done = 0; done < count;) {
    const auto got = ::pread(file_.get(), to + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_checkpoint_error("read the file", path_, errno);
    if (got == 0) throw_checkpoint_damage(path_, "was shortened while it was read");
    done += static_cast<std::size_t>(got);
  }
}

std::uint32_t EntryReader::checksum(std::uint64_t offset, std::uint64_t bytes, std::string& buffer) const {
  ::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_SEQUENTIAL);
  buffer.resize(kReadBytes);
  std::uint32_t crc = 0;
  while (bytes > 0) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kReadBytes));
    read(offset, buffer.data(), count);
    crc = extend_crc32c(crc, {buffer.data(), count});
    offset += count;
    bytes -= count;
  }
  return crc;
}

}  // namespace libtrain::detail
