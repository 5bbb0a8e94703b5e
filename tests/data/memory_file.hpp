#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// A file for tests whose content is a string. Any thread may read.
class MemoryFile final : public File {
 public:
  explicit MemoryFile(std::string bytes, std::string name = "memory")
      : bytes_(std::move(bytes)), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > bytes_.size() || to.size() > bytes_.size() - offset) {
      throw EnvironmentError(text("File '", name_, "', byte offset ", offset, ": expected ", to.size(),
                                  " bytes, found the end at ", bytes_.size(), "."));
    }
    reads_.fetch_add(1, std::memory_order_relaxed);
    if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
  }

  void read_parts_at(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const override {
    File::read_parts_at(offset, first, second);
    reads_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// How many requests have been made.
  int reads() const { return reads_.load(std::memory_order_relaxed); }

 private:
  std::string bytes_;
  std::string name_;
  mutable std::atomic<int> reads_ = 0;
};

inline std::unique_ptr<const File> memory_file(std::string bytes, std::string name = "memory") {
  return std::make_unique<MemoryFile>(std::move(bytes), std::move(name));
}

/// A tebibyte of zeros, as a sparse file of that length is read.
class ZeroFile final : public File {
 public:
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return std::uint64_t{1} << 40; }
  void read_at(std::uint64_t, std::span<std::byte> to) const override { std::memset(to.data(), 0, to.size()); }

 private:
  std::string name_ = "zeros";
};

}  // namespace libtrain::data
