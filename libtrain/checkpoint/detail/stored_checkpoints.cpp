#include <libtrain/checkpoint/detail/stored_checkpoints.hpp>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_file_writer.hpp>

namespace libtrain::detail {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_stored_damage(const ObjectStore& store, const std::string& name, const std::string& what) {
  throw CheckpointDamagedError(
      text("The checkpoint file '", store.name(), '/', name, "' ", what, ". Use another checkpoint."));
}

void require_bytes(const ObjectStore& store, std::int64_t step, const CheckpointFile& expected, std::uint64_t bytes,
                   std::uint32_t crc) {
  if (bytes == expected.bytes && crc == expected.crc32c) return;
  throw_stored_damage(store, stored_name(step, expected.name), "is damaged: its bytes have changed");
}

void copy_to_root(ObjectStore& store, const StoredManifest& stored, CheckpointWriter& writer) {
  const auto step = stored.manifest.step;
  const auto begun = writer.begin(step);
  try {
    for (const auto& entry : stored.manifest.files) {
      CheckpointFileWriter file{writer.root(), begun, entry.name};
      store.get(stored_name(step, entry.name), [&](std::string_view bytes) { file.write(bytes); });
      const auto written = file.finish();
      require_bytes(store, step, entry, written.bytes, written.crc32c);
    }
    writer.commit_copy(stored.bytes);
  } catch (...) {
    writer.abandon();
    throw;
  }
}

}  // namespace

bool StoredFolders::has_manifest(std::int64_t step) const {
  const auto folder = steps.find(step);
  if (folder == steps.end()) return false;
  const auto manifest = folder->second.find(kManifestName);
  return manifest != folder->second.end() && manifest->second > 0;
}

StoredFolders list_stored_folders(ObjectStore& store) {
  StoredFolders folders;
  for (auto& object : store.list()) {
    if (object.name == kStoreWriterName) folders.has_writer = true;
    const auto slash = object.name.find('/');
    if (slash == std::string::npos) continue;
    const auto step = parse_checkpoint_folder_name(object.name.substr(0, slash));
    if (step) folders.steps[*step].emplace(object.name.substr(slash + 1), object.bytes);
  }
  return folders;
}

std::vector<CheckpointManifest> list_stored_manifests(ObjectStore& store) {
  std::vector<CheckpointManifest> manifests;
  const auto folders = list_stored_folders(store);
  for (const auto& [step, files] : folders.steps) {
    if (!folders.has_manifest(step)) continue;
    try {
      manifests.push_back(read_stored_manifest(store, folders, step).manifest);
    } catch (const CheckpointDamagedError&) {
    } catch (const CheckpointVersionError&) {
    }
  }
  return manifests;
}

std::string stored_name(std::int64_t step, const std::string& name) {
  return text(checkpoint_folder_name(step), '/', name);
}

StoredManifest read_stored_manifest(ObjectStore& store, const StoredFolders& folders, std::int64_t step) {
  const auto name = stored_name(step, kManifestName);
  if (!folders.has_manifest(step)) throw_stored_damage(store, name, "is missing");
  const auto& files = folders.steps.at(step);
  if (files.at(kManifestName) > kLongestManifest) throw_stored_damage(store, name, "is too long");
  StoredManifest stored;
  store.get(name, [&](std::string_view bytes) { stored.bytes += bytes; });
  stored.manifest = parse_checkpoint_manifest(stored.bytes, text(store.name(), '/', name));
  if (stored.manifest.step != step) throw_stored_damage(store, name, text("is of step ", stored.manifest.step));
  for (const auto& entry : stored.manifest.files) {
    const auto file = files.find(entry.name);
    if (file == files.end()) throw_stored_damage(store, stored_name(step, entry.name), "is missing");
    if (file->second != entry.bytes) {
      throw_stored_damage(store, stored_name(step, entry.name),
                          text("has ", file->second, " bytes; it was written with ", entry.bytes));
    }
  }
  return stored;
}

void verify_stored_checkpoint(ObjectStore& store, const CheckpointManifest& manifest) {
  for (const auto& entry : manifest.files) {
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;
    store.get(stored_name(manifest.step, entry.name), [&](std::string_view piece) {
      bytes += piece.size();
      crc = extend_crc32c(crc, piece);
    });
    require_bytes(store, manifest.step, entry, bytes, crc);
  }
}

NewestCheckpoint fetch_newest_checkpoint(ObjectStore& store, const fs::path& root,
                                         const std::function<CheckpointWriter&()>& open_writer) {
  auto newest = find_newest_checkpoint(root);
  const auto local_step = newest.checkpoint ? newest.checkpoint->manifest().step : -1;
  auto folders = list_stored_folders(store);
  while (!folders.steps.empty() && folders.steps.rbegin()->first > local_step) {
    const auto step = folders.steps.rbegin()->first;
    try {
      // A folder without a manifest is an upload that has not ended, and no fault.
      if (folders.has_manifest(step)) {
        copy_to_root(store, read_stored_manifest(store, folders, step), open_writer());
        newest.checkpoint.emplace(root / checkpoint_folder_name(step));
        return newest;
      }
    } catch (const CheckpointDamagedError& error) {
      newest.passed_over.emplace_back(error.what());
    } catch (const CheckpointVersionError&) {
      throw;
    } catch (const EnvironmentError&) {
      // The run that writes there may have removed it, after it uploaded newer ones.
      auto now = list_stored_folders(store);
      if (now.has_manifest(step)) throw;
      folders = std::move(now);
      continue;
    }
    folders.steps.erase(step);
  }
  return newest;
}

bool fetch_checkpoint(ObjectStore& store, std::int64_t step, CheckpointWriter& writer) {
  const auto folders = list_stored_folders(store);
  if (!folders.has_manifest(step)) return false;
  copy_to_root(store, read_stored_manifest(store, folders, step), writer);
  return true;
}

}  // namespace libtrain::detail
