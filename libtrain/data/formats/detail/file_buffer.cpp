#include <libtrain/data/formats/detail/file_buffer.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

class MemoryFile final : public File {
 public:
  MemoryFile(std::string name, std::string bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > bytes_.size() || bytes_.size() - offset < to.size()) {
      throw EnvironmentError(text("File '", name_, "', byte offset ", offset, " of its content in memory: expected ",
                                  to.size(), " bytes, found ",
                                  bytes_.size() - std::min<std::uint64_t>(offset, bytes_.size()), "."));
    }
    if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
  }

 private:
  std::string name_;
  std::string bytes_;
};

}  // namespace

std::unique_ptr<const File> file_in_memory(std::string name, std::string bytes) {
  return std::make_unique<const MemoryFile>(std::move(name), std::move(bytes));
}

namespace {

// A local disk serves the smallest at once; the largest makes the delay of a remote store small beside its transfer.
constexpr std::size_t kSmallestRead = std::size_t{64} << 10;
constexpr std::size_t kLargestRead = std::size_t{4} << 20;

}  // namespace

std::string_view ReadWindow::at(std::uint64_t offset, std::size_t count) {
  if (offset < begin_ || offset + count > begin_ + buffer_.size()) move_to(offset, count);
  return std::string_view{buffer_}.substr(static_cast<std::size_t>(offset - begin_), count);
}

void ReadWindow::move_to(std::uint64_t offset, std::size_t count) {
  // Where entries are longer than the window, most of a long read would be thrown away.
  const bool close_by = offset >= begin_ && offset <= begin_ + buffer_.size() + kSmallestRead;
  read_bytes_ = close_by ? std::clamp(2 * read_bytes_, kSmallestRead, kLargestRead) : kSmallestRead;
  const std::uint64_t left = file_.size() - offset;
  buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(std::max(read_bytes_, count), left)));
  begin_ = offset;
  file_.read_at(offset, std::as_writable_bytes(std::span{buffer_}));
}

}  // namespace libtrain::data::detail
