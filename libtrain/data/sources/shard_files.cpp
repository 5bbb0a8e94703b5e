#include <libtrain/data/sources/shard_files.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/source_checks.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint64_t kLongestClassFile = std::uint64_t{64} << 20;

[[noreturn]] void fail_line(const File& file, std::size_t offset, std::string_view found) {
  throw EnvironmentError(text("File '", file.name(), "', byte offset ", offset,
                              ": expected the name of a class on every line, found ", found, "."));
}

std::vector<std::string> lines_of(const File& file) {
  const std::string content = read_all(file, kLongestClassFile);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view line = std::string_view{content}.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) fail_line(file, begin, "an empty line");
    lines.emplace_back(line);
    begin = end + 1;
  }
  if (lines.empty()) fail_line(file, 0, "no line");
  return lines;
}

// Cuts a number of five or more digits off the end.
bool cut_number(std::string_view& name) {
  constexpr std::size_t kMinDigits = 5;
  const std::size_t last = name.find_last_not_of("0123456789");
  const std::size_t begin = last == std::string_view::npos ? 0 : last + 1;
  if (name.size() - begin < kMinDigits) return false;
  name = name.substr(0, begin);
  return true;
}

// As "train-00003-of-00128" does.
bool ends_in_shard_number(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  if (!cut_number(name) || !name.ends_with(kOf)) return false;
  name.remove_suffix(kOf.size());
  return cut_number(name) && name.ends_with('-');
}

}  // namespace

ClassNames::ClassNames(const File& file) : file_(file.name()), names_(lines_of(file)) {}

void ClassNames::fail(std::int64_t label, const std::string& source) const {
  throw EnvironmentError(text(source, ": expected a label below ", names_.size(), ", as many names of classes as '",
                              file_, "' has, found ", label, "; correct the labels or that file."));
}

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

std::string_view name_of(ShardKind kind) {
  switch (kind) {
    case ShardKind::parquet:
      return "Parquet files";
    case ShardKind::tar:
      return "tar archives";
    case ShardKind::tf_record:
      break;
  }
  return "TFRecord files";
}

std::optional<ShardKind> shard_kind_of(std::string_view path, std::string_view folder, std::string_view prefix) {
  const std::size_t begin = folder.empty() ? 0 : folder.size() + 1;
  if (path.size() <= begin || !path.starts_with(folder)) return std::nullopt;
  const std::string_view name = path.substr(begin);
  if (name.find('/') != std::string_view::npos || !name.starts_with(prefix)) return std::nullopt;

  const std::string small = lower_case(name);
  if (small.ends_with(".parquet")) return ShardKind::parquet;
  if (small.ends_with(".tar") || small.ends_with(".tar.gz") || small.ends_with(".tgz")) return ShardKind::tar;
  if (small.ends_with(".tfrecord-index") || small.ends_with(".partial")) return std::nullopt;
  if (small.find(".tfrecord") != std::string::npos || ends_in_shard_number(small)) return ShardKind::tf_record;
  return std::nullopt;
}

void require_finished_set(const Storage& storage, const std::string& folder, const std::vector<FileInfo>& files) {
  const std::string unfinished = text(folder, folder.empty() ? "" : "/", kUnfinishedSet);
  if (std::ranges::find(files, unfinished, &FileInfo::path) == files.end()) return;
  throw EnvironmentError(text("Folder '", name_in(storage, folder),
                              "': libtrain-pack is about to put new shards in the place of others there, or was ended "
                              "while it did; wait for it, or run it again for that folder, which puts the former ones "
                              "back first."));
}

ShardFolder list_shards(const Storage& storage, const std::string& folder, const std::string& prefix, ShardKind kind) {
  const std::string class_names = folder.empty() ? "classes.txt" : folder + "/classes.txt";
  auto files = storage.list(folder);
  require_finished_set(storage, folder, files);
  ShardFolder found;
  for (auto& file : files) {
    if (file.path == class_names) found.class_names = class_names;
    if (shard_kind_of(file.path, folder, prefix) == kind) found.shards.push_back(std::move(file));
  }
  if (found.shards.empty()) {
    const std::string named = prefix.empty() ? "" : text(" with names that begin with '", prefix, "'");
    throw EnvironmentError(text("Folder '", name_in(storage, folder), "': expected ", name_of(kind), named,
                                " right in it, found none among its ", files.size(),
                                " files; name the folder that holds them."));
  }
  return found;
}

void at_once(std::size_t count, const std::function<void(std::size_t)>& work) {
  constexpr std::size_t kMaxThreads = 16;
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed = count;
  std::exception_ptr failure;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (i < failed) failure = std::current_exception();
        failed = std::min(failed, i);
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (std::size_t i = 1; i < std::min(count, kMaxThreads); ++i) helpers.emplace_back(run);
    } catch (const std::system_error&) {  // the system refuses threads: those that run will do
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

void require_samples(std::uint64_t samples, const std::string& shard) {
  if (samples > 0) return;
  throw EnvironmentError(text("Shard '", shard,
                              "': expected samples, found none, as a copy that was cut short leaves it; ",
                              "write the shard again, or remove it."));
}

}  // namespace libtrain::data::detail
