#include <libtrain/data/formats/file_buffer.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

class MemoryFile final : public File {
 public:
  MemoryFile(std::string name, std::string bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > bytes_.size() || bytes_.size() - offset < to.size()) {
      throw EnvironmentError(text("File '", name_, "', byte offset ", offset, ": expected ", to.size(),
                                  " more bytes, found ", bytes_.size() - std::min<std::uint64_t>(offset, bytes_.size()),
                                  "."));
    }
    if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
  }

 private:
  std::string name_;
  std::string bytes_;
};

}  // namespace

PaddedBuffer::PaddedBuffer(std::size_t size)
    : size_(size), bytes_(std::make_unique_for_overwrite<char[]>(size + kPadding)) {
  std::memset(bytes_.get() + size, 0, kPadding);
}

PaddedBuffer read_padded(const File& file, std::uint64_t limit_bytes) {
  const std::uint64_t size = file.size();
  if (size > limit_bytes) {
    throw EnvironmentError(
        text("File '", file.name(), "' has ", size, " bytes; expected at most ", limit_bytes, " to be read at once."));
  }
  PaddedBuffer buffer{size};
  if (size > 0) file.read_at(0, std::as_writable_bytes(std::span{buffer.data(), buffer.size()}));
  return buffer;
}

std::unique_ptr<const File> file_in_memory(std::string name, std::string bytes) {
  return std::make_unique<const MemoryFile>(std::move(name), std::move(bytes));
}

}  // namespace libtrain::data
