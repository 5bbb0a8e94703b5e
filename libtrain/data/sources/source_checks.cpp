#include <libtrain/data/sources/source_checks.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
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

  void read_parts_at(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const override {
    file_->read_parts_at(offset, first, second);
    count_bytes_read(first.size() + second.size());
  }

 private:
  std::unique_ptr<const File> file_;
};

}  // namespace

std::shared_ptr<const Storage> require_storage(std::shared_ptr<const Storage> storage) {
  if (!storage) throw UsageError("A source of images needs a storage, such as the result of open_storage().");
  return storage;
}

void require_images(std::uint64_t size, const std::string& name) {
  if (size == 0) throw EnvironmentError(text("Folder '", name, "': expected images, found none."));
}

void require_image(std::uint64_t index, std::uint64_t size, const std::string& name) {
  if (index >= size) {
    throw UsageError(text("Image ", index, " of the folder '", name, "' was requested, but it has ", size, " images."));
  }
}

std::unique_ptr<const File> open_counted(const Storage& storage, const std::string& path) {
  return std::make_unique<CountedFile>(storage.open(path));
}

}  // namespace libtrain::data::detail
