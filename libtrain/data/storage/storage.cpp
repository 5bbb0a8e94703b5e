#include <libtrain/data/storage/storage.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>

#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

void add_number(ContentHasher& hasher, std::uint64_t number) {
  hasher.update(std::as_bytes(std::span{&number, 1}));
}

// With its length, so that different lists of texts never give the same bytes.
void add_text(ContentHasher& hasher, std::string_view bytes) {
  add_number(hasher, bytes.size());
  hasher.update(bytes);
}

[[noreturn]] void fail_changed(const Storage& from, const std::string& path, const CacheKey& key, const FileInfo& now) {
  throw EnvironmentError(text("File '", detail::describe(from, path), "' has changed since it was listed: it had ",
                              key.size, " bytes and has ", now.size, " now, or has another version (", now.version,
                              "). Do not change the data while a run reads it, and start the run again."));
}

}  // namespace

CacheKey cache_key(const std::string& storage, const FileInfo& file) {
  ContentHasher hasher;
  add_text(hasher, storage);
  add_text(hasher, file.path);
  add_text(hasher, file.version);
  add_number(hasher, file.size);
  return {.hash = hasher.digest(), .size = file.size};
}

namespace detail {

bool leads_below(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find('/', begin), path.size());
    const auto part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

void require_path_below(const std::string& root, std::string_view path) {
  if (leads_below(path)) return;
  throw EnvironmentError(
      text("Path '", path, "' below '", root, "': expected parts joined by '/', none of them empty, '.' or '..'."));
}

std::unique_ptr<const File> open_unchanged(const Storage& from, const std::string& path, const CacheKey& key) {
  // First open(), then info(): if the file changes in between, reading the open file fails.
  auto file = from.open(path);
  const auto now = from.info(path);
  if (file->size() == key.size && cache_key(from.identity(), now) == key) return file;
  fail_changed(from, path, key, now);
}

std::unique_ptr<const File> open_to_copy(const Storage& from, const std::string& path, const CacheKey& key) {
  auto file = from.open(path);
  if (file->size() == key.size) return file;
  fail_changed(from, path, key, from.info(path));
}

void require_unchanged(const Storage& from, const std::string& path, const CacheKey& key) {
  const auto now = from.info(path);
  if (cache_key(from.identity(), now) != key) fail_changed(from, path, key, now);
}

std::string describe(const Storage& storage, const std::string& path) {
  const auto& root = storage.name();
  return text(root, root.empty() || path.empty() || root.ends_with('/') ? "" : "/", path);
}

void run_concurrently(std::size_t count, std::size_t threads,
                      const std::function<void(std::size_t, const std::stop_token&)>& work) {
  std::atomic<std::size_t> next = 0;
  std::stop_source stop;
  std::mutex mutex;
  std::size_t failed = count;
  std::exception_ptr failure;
  const auto run = [&] {
    while (!stop.stop_requested()) {
      const std::size_t i = next++;
      if (i >= count) return;
      try {
        work(i, stop.get_token());
      } catch (...) {
        stop.request_stop();
        const std::lock_guard lock(mutex);
        if (i < failed) failure = std::current_exception();
        failed = std::min(failed, i);
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (std::size_t i = 1; i < std::min(count, threads); ++i) helpers.emplace_back(run);
    } catch (const std::system_error&) {  // the system refuses threads: the existing ones do the work
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

}  // namespace libtrain::data
