#include <libtrain/data/sources/shard_files.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/source_checks.hpp>
#include <libtrain/data/storage/location.hpp>

namespace libtrain::data::detail {

namespace {

// Cuts a number of five or more digits off the end.
bool cut_number(std::string_view& name) {
  constexpr std::size_t kFewestDigits = 5;
  const std::size_t last = name.find_last_not_of("0123456789");
  const std::size_t begin = last == std::string_view::npos ? 0 : last + 1;
  if (name.size() - begin < kFewestDigits) return false;
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
  constexpr std::size_t kMostThreads = 16;
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
      for (std::size_t i = 1; i < std::min(count, kMostThreads); ++i) helpers.emplace_back(run);
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
