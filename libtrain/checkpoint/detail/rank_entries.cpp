#include <libtrain/checkpoint/detail/rank_entries.hpp>

#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include <libtrain/base/error.hpp>
#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/folder.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kInterval{10};
constexpr int kTries = 100;
constexpr const char* kEntries = "entries";
constexpr const char* kFailed = "failed";

std::string name_of(int rank, std::string_view kind) {
  return text("rank-", rank, '.', kind);
}

// Waits for one rank.
std::vector<CheckpointFile> entries_of(int rank, const Folder& folder, const std::stop_token& stop) {
  const auto name = name_of(rank, kEntries);
  for (;; std::this_thread::sleep_for(kInterval)) {
    if (const auto left = read_small_file(folder, name, kLongestManifest)) {
      folder.remove_file(name);
      return parse_checkpoint_files(*left);
    }
    if (const auto reason = read_small_file(folder, name_of(rank, kFailed), kLongestManifest)) {
      throw EnvironmentError(reason->empty() ? text("Rank ", rank, " cannot write its files of the checkpoint '",
                                                    folder.path().string(), "'. Check the free space of its disk.")
                                             : text("Rank ", rank, ": ", *reason));
    }
    if (stop.stop_requested()) {
      throw EnvironmentError(text("The checkpoint '", folder.path().string(), "' lacks the files of rank ", rank, "."));
    }
  }
}

}  // namespace

void leave_entries(const std::filesystem::path& root, const std::string& begun, int rank,
                   const std::vector<CheckpointFile>& entries) {
  const auto folder = Folder{root}.inside(begun);
  const auto name = name_of(rank, kEntries);
  write_synced(folder, name + ".new", to_text(entries));
  folder.rename(name + ".new", name);
}

bool leave_failure(const std::filesystem::path& root, const std::string& begun, int rank, const std::string& reason) {
  // Where the disk of all ranks is full, rank 0 is removing the folder meanwhile: seen again, it is gone.
  for (int tries = 0; tries < kTries; ++tries, std::this_thread::sleep_for(kInterval)) {
    try {
      const Folder all{root};
      if (!all.status(begun)) return true;
      const auto folder = all.inside(begun);
      const auto name = name_of(rank, kFailed);
      const auto unfinished = text(name, ".new", tries);
      const auto file = folder.create_file(unfinished);
      static_cast<void>(write_all(file.get(), reason));  // on a full disk the empty file says enough
      folder.rename(unfinished, name);
      return true;
    } catch (const EnvironmentError&) {
    }
  }
  return false;
}

std::vector<CheckpointFile> collect_entries(const std::filesystem::path& root, const std::string& begun, int world_size,
                                            const std::stop_token& stop) {
  const auto folder = Folder{root}.inside(begun);
  std::vector<CheckpointFile> all;
  for (int rank = 1; rank < world_size; ++rank) {
    for (auto& entry : entries_of(rank, folder, stop)) all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace libtrain::detail
