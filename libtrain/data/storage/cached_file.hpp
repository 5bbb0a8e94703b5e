#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// The local copy of a file. The entry stays in the cache as long as this lives.
class CachedFile final : public File {
 public:
  /// `name` is the remote file's, `size` its length; `entry` what CacheDirectory::open_entry() returned.
  CachedFile(std::string name, std::uint64_t size, DiskFile entry)
      : name_(std::move(name)), size_(size), entry_(std::move(entry)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override;

 private:
  const std::string name_;
  const std::uint64_t size_;
  const DiskFile entry_;
};

}  // namespace libtrain::data::detail
