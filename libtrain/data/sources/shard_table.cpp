#include <libtrain/data/sources/shard_table.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/source_checks.hpp>

namespace libtrain::data::detail {

ShardTable::ShardTable(std::string name, const std::vector<std::uint64_t>& sizes) : name_(std::move(name)) {
  ends_.reserve(sizes.size());
  std::uint64_t images = 0;
  for (const std::uint64_t size : sizes) {
    if (size > std::numeric_limits<std::uint64_t>::max() - images) {
      throw EnvironmentError(text("Folder '", name_, "': expected fewer than 2^64 images in all, found ", images,
                                  " in some shards and ", size, " in the next, which must be damaged."));
    }
    images += size;
    ends_.push_back(images);
  }
  require_images(images, name_);
}

ShardPlace ShardTable::place(std::uint64_t index) const {
  require_image(index, size(), name_);
  // Empty shards end where the one before does: the first that ends behind the image is the one that holds it.
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const std::uint64_t begin = end == ends_.begin() ? 0 : *(end - 1);
  return {.shard = static_cast<std::size_t>(end - ends_.begin()), .position = index - begin};
}

std::vector<std::uint64_t> ShardTable::blocks() const {
  std::vector<std::uint64_t> blocks;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends_) {
    if (end > begin) blocks.push_back(end - begin);
    begin = end;
  }
  return blocks;
}

}  // namespace libtrain::data::detail
