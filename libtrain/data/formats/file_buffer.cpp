#include <libtrain/data/formats/file_buffer.hpp>

#include <algorithm>
#include <cstdint>
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

PaddedBuffer::PaddedBuffer(std::size_t size)
    : size_(size), bytes_(std::make_unique_for_overwrite<char[]>(size + kPadding)) {
  std::memset(bytes_.get() + size, 0, kPadding);
}

std::unique_ptr<const File> file_in_memory(std::string name, std::string bytes) {
  return std::make_unique<const MemoryFile>(std::move(name), std::move(bytes));
}

}  // namespace libtrain::data
