#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::test {

/// What was asked of a MemoryStorage, by the processes forked since it was made as well.
struct StorageCounts {
  std::atomic<std::uint64_t> opens = 0;
  std::atomic<std::uint64_t> infos = 0;
  std::atomic<std::uint64_t> lists = 0;
  std::atomic<std::uint64_t> bytes_read = 0;
};

/// Bytes that differ between seeds and along the way.
inline std::string content_of(std::size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  std::uint32_t state = 2654435761u * (seed + 1);
  for (auto& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

/// A storage in memory that counts what is asked of it and fails where it is told to. What is open of a file that is
/// then removed or put anew can be read no more, as with an object store that is asked for one version.
class MemoryStorage : public data::Storage {
 public:
  explicit MemoryStorage(std::string name = "memory://set", std::string identity = {})
      : name_(std::move(name)), identity_(identity.empty() ? name_ : std::move(identity)) {
    void* memory = mmap(nullptr, sizeof(StorageCounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw EnvironmentError("mmap failed.");
    counts_ = new (memory) StorageCounts;
  }
  MemoryStorage(const MemoryStorage&) = delete;  // open files refer to it
  MemoryStorage& operator=(const MemoryStorage&) = delete;
  ~MemoryStorage() override { munmap(counts_, sizeof(StorageCounts)); }

  /// Called before each read, outside of all locks: it may throw, wait, or change the storage. Set before use.
  std::function<void(const std::string& path, std::uint64_t offset)> before_read = {};

  /// The same before each listing.
  std::function<void()> before_list = {};

  /// A path that ends with '/' is an empty folder.
  void put(const std::string& path, std::string bytes, std::string version = "1") {
    const std::lock_guard lock(mutex_);
    contents_[path] = std::make_shared<Content>(Content{std::move(bytes), std::move(version)});
  }

  void remove(const std::string& path) {
    const std::lock_guard lock(mutex_);
    contents_.erase(path);
  }

  /// From now on the bytes of the file from `bytes` on cannot be read.
  void fail_after(const std::string& path, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    readable_[path] = bytes;
  }

  void heal(const std::string& path) {
    const std::lock_guard lock(mutex_);
    readable_.erase(path);
  }

  const StorageCounts& counts() const { return *counts_; }

  const std::string& name() const override { return name_; }
  std::string identity() const override { return identity_; }

  std::unique_ptr<const data::File> open(const std::string& path) const override {
    ++counts_->opens;
    return std::make_unique<Opened>(*this, path, find(path));
  }

  data::FileInfo info(const std::string& path) const override {
    ++counts_->infos;
    const auto content = find(path);
    return {.path = path, .size = content->bytes.size(), .version = content->version};
  }

  std::vector<data::FileInfo> list(const std::string& folder) const override {
    ++counts_->lists;
    if (before_list) before_list();
    const std::string prefix = folder.empty() ? "" : folder + "/";
    const std::lock_guard lock(mutex_);
    std::vector<data::FileInfo> files;
    for (const auto& [path, content] : contents_) {
      if (!path.starts_with(prefix)) continue;
      const auto kind = path.ends_with('/') ? data::FileKind::empty_folder : data::FileKind::file;
      files.push_back({.path = path, .size = content->bytes.size(), .version = content->version, .kind = kind});
    }
    return files;
  }

  std::optional<std::vector<std::string>> folders(const std::string& folder) const override {
    const std::string prefix = folder.empty() ? "" : folder + "/";
    const std::lock_guard lock(mutex_);
    std::set<std::string> names;
    for (const auto& [path, content] : contents_) {
      const auto slash = path.starts_with(prefix) ? path.find('/', prefix.size()) : std::string::npos;
      if (slash != std::string::npos) names.insert(path.substr(prefix.size(), slash - prefix.size()));
    }
    return std::vector<std::string>{names.begin(), names.end()};
  }

 private:
  struct Content {
    std::string bytes;
    std::string version;
  };

  class Opened : public data::File {
   public:
    Opened(const MemoryStorage& owner, std::string path, std::shared_ptr<const Content> content)
        : owner_(owner), path_(std::move(path)), name_(owner.name_ + "/" + path_), content_(std::move(content)) {}

    const std::string& name() const override { return name_; }
    std::uint64_t size() const override { return content_->bytes.size(); }

    void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
      if (owner_.before_read) owner_.before_read(path_, offset);
      if (owner_.find(path_) != content_) fail(offset, "the file was changed since it was opened");
      if (offset > size() || to.size() > size() - offset) fail(offset, "the file ends before");
      if (offset + to.size() > owner_.readable(path_)) fail(offset, "the connection was lost");
      owner_.counts_->bytes_read += to.size();
      const auto from = std::as_bytes(std::span{content_->bytes.data(), content_->bytes.size()});
      const auto part = from.subspan(offset, to.size());
      std::copy(part.begin(), part.end(), to.begin());
    }

   private:
    [[noreturn]] void fail(std::uint64_t offset, const char* reason) const {
      throw EnvironmentError(text("File '", name_, "', byte offset ", offset, ": ", reason, "."));
    }

    const MemoryStorage& owner_;
    const std::string path_;
    const std::string name_;
    const std::shared_ptr<const Content> content_;
  };

  std::shared_ptr<const Content> find(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = contents_.find(path);
    if (found == contents_.end()) throw EnvironmentError(text("File '", name_, "/", path, "' does not exist."));
    return found->second;
  }

  std::uint64_t readable(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = readable_.find(path);
    return found == readable_.end() ? std::numeric_limits<std::uint64_t>::max() : found->second;
  }

  const std::string name_;
  const std::string identity_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Content>> contents_;
  std::map<std::string, std::uint64_t> readable_;
  StorageCounts* counts_;
};

}  // namespace libtrain::test
