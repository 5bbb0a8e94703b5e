#include <libtrain/checkpoint/checkpoint_folder.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/best_mark.hpp>
#include <libtrain/checkpoint/detail/entry_reader.hpp>
#include <libtrain/checkpoint/detail/folder.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "step-";
constexpr std::size_t kStepDigits = 8;

std::string describe_checksums(std::uint32_t found, std::uint32_t expected) {
  return text("(CRC-32C ", detail::hexadecimal(found, 8), " instead of ", detail::hexadecimal(expected, 8), ")");
}

[[noreturn]] void throw_damaged_bytes(const fs::path& path, const CheckpointFile& entry,
                                      const detail::EntryReader& reader, std::uint32_t found, std::string& buffer) {
  for (const auto& tensor : entry.tensors) {
    const auto crc = reader.checksum(tensor.offset, tensor.bytes, buffer);
    if (crc == tensor.crc32c) continue;
    detail::throw_checkpoint_damage(
        path, text("is damaged: the ", tensor.bytes, " bytes from offset ", tensor.offset, ", tensor '", tensor.name,
                   "', have changed ", describe_checksums(crc, tensor.crc32c)));
  }
  detail::throw_checkpoint_damage(
      path, text("is damaged: its ", entry.bytes, " bytes have changed ", describe_checksums(found, entry.crc32c)));
}

void verify_file(const detail::Folder& folder, const CheckpointFile& entry) {
  const detail::EntryReader reader{folder, entry};
  std::string buffer;
  const auto crc = reader.checksum(0, entry.bytes, buffer);
  if (crc != entry.crc32c) throw_damaged_bytes(folder.path() / entry.name, entry, reader, crc, buffer);
}

CheckpointManifest read_manifest(const detail::Folder& folder) {
  const auto path = (folder.path() / detail::kManifestName).string();
  const auto manifest = detail::read_small_file(folder, detail::kManifestName, detail::kLongestManifest);
  if (!manifest) throw CheckpointDamagedError(text("'", path, "' is missing. Use another checkpoint."));
  return parse_checkpoint_manifest(*manifest, path);
}

bool is_gone(const fs::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) != 0 && errno == ENOENT;
}

// As CheckpointFolder, for one that lies in a run's folder.
CheckpointFolder open_step(const fs::path& folder, std::int64_t step) {
  CheckpointFolder checkpoint{folder};
  if (checkpoint.manifest().step != step) {
    throw CheckpointDamagedError(
        text("The checkpoint '", folder.string(), "' is one of step ", checkpoint.manifest().step, ". Rename it."));
  }
  return checkpoint;
}

// The steps of the folders of checkpoints in `root`, oldest first.
std::vector<std::int64_t> steps_in(const fs::path& root) {
  std::vector<std::int64_t> steps;
  if (is_gone(root)) return steps;
  for (const auto& name : detail::Folder{root}.names()) {
    if (const auto step = parse_checkpoint_folder_name(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

std::string checkpoint_folder_name(std::int64_t step) {
  auto digits = std::to_string(step);
  if (digits.size() < kStepDigits) digits.insert(0, kStepDigits - digits.size(), '0');
  return text(kFolderPrefix, digits);
}

std::optional<std::int64_t> parse_checkpoint_folder_name(std::string_view name) {
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  const auto step = detail::parse_decimal<std::int64_t>(name.substr(kFolderPrefix.size()), 0,
                                                        std::numeric_limits<std::int64_t>::max());
  return step && checkpoint_folder_name(*step) == name ? step : std::nullopt;
}

CheckpointFolder::CheckpointFolder(std::filesystem::path folder) : path_(std::move(folder)) {
  const detail::Folder open{path_};
  manifest_ = read_manifest(open);
  for (const auto& entry : manifest_.files) detail::EntryReader{open, entry};
}

void CheckpointFolder::verify() const {
  const detail::Folder open{path_};
  for (const auto& entry : manifest_.files) verify_file(open, entry);
}

void CheckpointFolder::verify(std::string_view name) const {
  verify_file(detail::Folder{path_}, require(name));
}

const CheckpointFile* CheckpointFolder::find(std::string_view name) const {
  const auto& files = manifest_.files;
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
  return found == files.end() ? nullptr : std::to_address(found);
}

std::filesystem::path CheckpointFolder::file(std::string_view name) const {
  return path_ / require(name).name;
}

std::string CheckpointFolder::read(std::string_view name, std::uint64_t limit_bytes) const {
  const auto& entry = require(name);
  if (entry.bytes > limit_bytes) {
    detail::throw_checkpoint_damage(path_ / entry.name,
                                    text("has ", entry.bytes, " bytes, more than the ", limit_bytes, " expected"));
  }
  const detail::EntryReader reader{detail::Folder{path_}, entry};
  std::string bytes(entry.bytes, '\0');
  reader.read(0, bytes.data(), bytes.size());
  const auto crc = detail::crc32c(bytes);
  std::string buffer;
  if (crc != entry.crc32c) throw_damaged_bytes(path_ / entry.name, entry, reader, crc, buffer);
  return bytes;
}

const CheckpointFile& CheckpointFolder::require(std::string_view name) const {
  if (const auto* entry = find(name)) return *entry;
  throw EnvironmentError(text("The checkpoint '", path_.string(), "' has no file '", name,
                              "'. Use one that was written by the same program."));
}

std::vector<CheckpointStatus> list_checkpoints(const std::filesystem::path& root) {
  std::vector<CheckpointStatus> checkpoints;
  for (const auto step : steps_in(root)) {
    CheckpointStatus status{.step = step, .folder = root / checkpoint_folder_name(step)};
    try {
      open_step(status.folder, step);
    } catch (const EnvironmentError& error) {
      if (is_gone(status.folder)) continue;
      status.problem = error.what();
    }
    checkpoints.push_back(std::move(status));
  }
  return checkpoints;
}

NewestCheckpoint find_newest_checkpoint(const std::filesystem::path& root) {
  NewestCheckpoint newest;
  auto steps = steps_in(root);
  while (!steps.empty()) {
    const auto step = steps.back();
    const auto folder = root / checkpoint_folder_name(step);
    try {
      newest.checkpoint = open_step(folder, step);
      newest.checkpoint->verify();
      return newest;
    } catch (const CheckpointVersionError&) {
      throw;
    } catch (const EnvironmentError& error) {
      newest.checkpoint.reset();
      if (is_gone(folder)) {
        // The run that writes has removed it, after it committed newer ones.
        newest.passed_over.clear();
        steps = steps_in(root);
        continue;
      }
      newest.passed_over.emplace_back(error.what());
      steps.pop_back();
    }
  }
  return newest;
}

std::vector<CheckpointManifest> list_manifests(const std::filesystem::path& root) {
  std::vector<CheckpointManifest> manifests;
  for (const auto& status : list_checkpoints(root)) {
    if (status.is_complete()) manifests.push_back(CheckpointFolder{status.folder}.manifest());
  }
  return manifests;
}

std::optional<CheckpointFolder> find_best_checkpoint(const std::filesystem::path& root) {
  if (is_gone(root)) return std::nullopt;
  const auto step = detail::read_best_mark(detail::Folder{root});
  if (!step) return std::nullopt;
  return open_step(root / checkpoint_folder_name(*step), *step);
}

}  // namespace libtrain
