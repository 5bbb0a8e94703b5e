#include <libtrain/data/storage/download.hpp>

#include <algorithm>
#include <memory>

namespace libtrain::data::detail {

int write_block(const DiskFile& to, std::uint64_t offset, std::span<const std::byte> bytes) {
  return to.write(offset, bytes);
}

Download download(const File& from, const DiskFile& to, const DownloadOptions& options, const std::stop_token& stop) {
  const std::uint64_t size = from.size();
  const auto block_bytes = static_cast<std::size_t>(std::min(size, options.block_bytes));
  const auto block = std::make_unique_for_overwrite<std::byte[]>(block_bytes);
  if (const int error = to.allocate(size); error != 0) return {.disk_error = error};

  ContentHasher hasher;
  for (std::uint64_t offset = 0; offset < size;) {
    if (stop.stop_requested()) return {.stopped = true};
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(size - offset, block_bytes));
    const std::span bytes{block.get(), count};
    from.read_at(offset, bytes);
    hasher.update(bytes);
    if (const int error = options.write(to, offset, bytes); error != 0) return {.disk_error = error};
    offset += count;
    if (options.progress) options.progress(count);
  }
  return {.content = hasher.digest()};
}

}  // namespace libtrain::data::detail
