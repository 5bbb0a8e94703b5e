#include <libtrain/data/sources/counted_file.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data::detail {

namespace {

class CountedFile final : public File {
 public:
  explicit CountedFile(std::unique_ptr<const File> file) : file_(std::move(file)) {}

  const std::string& name() const override { return file_->name(); }
  std::uint64_t size() const override { return file_->size(); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    file_->read_at(offset, to);
    count_bytes_read(to.size());
  }

 private:
  std::unique_ptr<const File> file_;
};

}  // namespace

std::unique_ptr<const File> open_counted(const Storage& storage, const std::string& path) {
  return std::make_unique<CountedFile>(storage.open(path));
}

}  // namespace libtrain::data::detail
