#include <tools/checkpoint/folders.hpp>

#include <cstdint>
#include <numeric>
#include <system_error>
#include <utility>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/detail/utc_time.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/best_mark.hpp>
#include <libtrain/checkpoint/detail/folder.hpp>

#include <tools/checkpoint/tensor_reader.hpp>

namespace libtrain::checkpoint_tool {

namespace {

namespace fs = std::filesystem;

// A checkpoint that is complete, or what is wrong with it.
struct Found {
  fs::path folder = {};
  std::optional<CheckpointFolder> checkpoint = {};
  std::string problem = {};
};

Found try_to_open(const fs::path& folder) {
  Found found{.folder = folder};
  try {
    found.checkpoint.emplace(folder);
  } catch (const EnvironmentError& error) {
    found.problem = error.what();
  }
  return found;
}

// By its run, after the folder was listed.
bool is_removed(const Found& found) {
  return !fs::exists(found.folder);
}

// Without a slash at the end, so that it has a name and a parent.
fs::path plain(const fs::path& folder) {
  const auto path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

bool is_one_checkpoint(const fs::path& folder) {
  return parse_checkpoint_folder_name(plain(folder).filename().string()) || fs::exists(folder / detail::kManifestName);
}

// The folder of the run's checkpoints, where `folder` may be the run's or one of them.
fs::path root_of(const fs::path& folder) {
  if (is_one_checkpoint(folder)) return plain(folder).parent_path();
  const auto inside = folder / "checkpoints";
  return fs::is_directory(inside) ? inside : folder;
}

std::vector<Found> find_checkpoints(const fs::path& folder) {
  const detail::Folder readable{folder};
  if (is_one_checkpoint(folder)) return {try_to_open(folder.has_filename() ? folder : folder.parent_path())};
  std::vector<Found> all;
  for (const auto& status : list_checkpoints(root_of(folder))) {
    auto found =
        status.is_complete() ? try_to_open(status.folder) : Found{.folder = status.folder, .problem = status.problem};
    if (!is_removed(found)) all.push_back(std::move(found));
  }
  return all;
}

std::uint64_t bytes_of(const CheckpointManifest& manifest) {
  const auto add = [](std::uint64_t sum, const CheckpointFile& file) { return sum + file.bytes; };
  return std::accumulate(manifest.files.begin(), manifest.files.end(), std::uint64_t{0}, add);
}

std::string megabytes(std::uint64_t bytes) {
  return text(detail::decimal(static_cast<double>(bytes) / 1e6, 1), " MB");
}

Json json_of(const Found& found, std::optional<std::int64_t> best) {
  Json json = {{"folder", found.folder.string()}, {"complete", found.checkpoint.has_value()}};
  if (!found.checkpoint) {
    json["problem"] = found.problem;
    return json;
  }
  const auto& manifest = found.checkpoint->manifest();
  json.update({{"step", manifest.step},
               {"epoch", manifest.epoch},
               {"bytes", bytes_of(manifest)},
               {"world_size", manifest.world_size},
               {"time", manifest.time},
               {"metrics", manifest.metrics},
               {"best", manifest.step == best},
               {"libtrain", manifest.libtrain_version},
               {"torch", manifest.torch_version},
               {"run_ids", manifest.run_ids},
               {"files", Json::array()}});
  for (const auto& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"tensors", file.tensors.size()}});
  }
  return json;
}

std::string line_of(const Found& found, std::optional<std::int64_t> best) {
  if (!found.checkpoint) return text(plain(found.folder).filename().string(), " is damaged: ", found.problem);
  const auto& manifest = found.checkpoint->manifest();
  std::string line = text("step ", manifest.step, ", epoch ", manifest.epoch, ", ", megabytes(bytes_of(manifest)),
                          ", world size ", manifest.world_size, ", written ", detail::utc_time(manifest.time));
  for (const auto& [name, value] : manifest.metrics) line += text(", ", name, ' ', value);
  return manifest.step == best ? line + ", best" : line;
}

// One thing that verify() has read.
struct Verified {
  std::string path = {};
  std::uint64_t bytes = 0;
  bool has_checksums = true;
  std::vector<std::string> problems = {};
};

Verified verify_checkpoint(const Found& found) {
  Verified verified{.path = found.folder.string()};
  if (!found.checkpoint) {
    verified.problems.push_back(found.problem);
    return verified;
  }
  verified.bytes = bytes_of(found.checkpoint->manifest());
  for (const auto& file : found.checkpoint->manifest().files) {
    try {
      found.checkpoint->verify(file.name);
    } catch (const EnvironmentError& error) {
      verified.problems.emplace_back(error.what());
    }
  }
  return verified;
}

Verified verify_file(const std::string& path) {
  Verified verified{.path = path};
  try {
    TensorReader reader{path};
    verified.has_checksums = reader.has_checksums();
    for (std::size_t index = 0; index < reader.tensors().size(); ++index) verified.bytes += reader.read(index).size();
  } catch (const EnvironmentError& error) {
    verified.problems.emplace_back(error.what());
  }
  return verified;
}

}  // namespace

void list(const std::string& folder, Report& report) {
  const auto all = find_checkpoints(folder);
  std::optional<std::int64_t> best;
  try {
    best = detail::read_best_mark(detail::Folder{root_of(folder)});
  } catch (const EnvironmentError& error) {
    report.json["problem"] = error.what();
    report.line(error.what());
  }
  report.json["checkpoints"] = Json::array();
  for (const auto& found : all) {
    report.json["checkpoints"].push_back(json_of(found, best));
    report.line(line_of(found, best));
  }
  if (all.empty()) report.line(text("There are no checkpoints in '", folder, "'."));
}

ExitCode verify(const std::vector<std::string>& paths, Report& report) {
  for (const auto& path : paths) {
    std::error_code error;
    if (fs::exists(path, error)) continue;
    throw EnvironmentError(
        text("'", path, "' cannot be verified: ", error ? error.message() : "it does not exist", ". Check the path."));
  }
  std::size_t damaged = 0;
  report.json["verified"] = Json::array();
  const auto add = [&](const Verified& verified) {
    report.json["verified"].push_back({{"path", verified.path},
                                       {"bytes", verified.bytes},
                                       {"checksums", verified.has_checksums},
                                       {"problems", verified.problems}});
    if (verified.problems.empty()) {
      report.line(text(verified.path, ": undamaged, ", megabytes(verified.bytes),
                       verified.has_checksums ? "" : ", by header and length: the format has no checksums"));
    }
    for (const auto& problem : verified.problems) report.line(text(verified.path, ": ", problem));
    if (!verified.problems.empty()) ++damaged;
  };
  for (const auto& path : paths) {
    if (!fs::is_directory(path)) {
      add(verify_file(path));
      continue;
    }
    const auto all = find_checkpoints(path);
    if (all.empty()) add({.path = path, .problems = {"There are no checkpoints in this folder. Check the path."}});
    for (const auto& found : all) {
      const auto verified = verify_checkpoint(found);
      if (verified.problems.empty() || !is_removed(found)) add(verified);
    }
  }
  return damaged == 0 ? ExitCode::success : ExitCode::environment;
}

CheckpointFolder open_checkpoint(const std::string& folder) {
  if (is_one_checkpoint(folder)) return CheckpointFolder{folder};
  const auto all = list_checkpoints(root_of(folder));
  if (all.empty()) {
    throw EnvironmentError(text("'", folder,
                                "' is a folder without checkpoints. Give a checkpoint, a file, or a folder with a "
                                "config.json and a model.safetensors."));
  }
  throw UsageError(
      text("'", folder, "' is a folder of checkpoints. Give one of them, such as '", all.back().folder.string(), "'."));
}

std::optional<std::string> model_weights(const std::string& path) {
  const fs::path folder{path};
  if (!fs::exists(folder / kConfigName) || is_one_checkpoint(folder)) return std::nullopt;
  for (const auto* const name : {"model.safetensors", "pytorch_model.bin"}) {
    if (fs::exists(folder / name)) return (folder / name).string();
  }
  return std::nullopt;
}

std::string weights_path(const std::string& path, const std::optional<std::string>& part) {
  if (!fs::is_directory(path)) return path;
  if (const auto weights = model_weights(path)) {
    if (part.value_or(kModelPart) == kModelPart) return *weights;
    throw UsageError(text("'", path, "' is the folder of a model, not a checkpoint, so that it has no part '", *part,
                          "'. Leave out --part, or give '", *weights, "'."));
  }
  const auto checkpoint = open_checkpoint(path);
  const auto name = part.value_or(kModelPart) + kPartEnding;
  static bool has_warned = false;  // of several inputs, for one
  if (!part && !has_warned && checkpoint.find(text(kModelPart, "-average", kPartEnding)) != nullptr) {
    has_warned = true;
    log_warning(text("The checkpoint '", path, "' also has the moving average of the weights, to which its metrics ",
                     "belong. Set --part to ", kModelPart, "-average for it, or to ", kModelPart, " for these."));
  }
  if (checkpoint.find(name) == nullptr) {
    std::vector<std::string> files;
    for (const auto& file : checkpoint.manifest().files) files.push_back(file.name);
    throw UsageError(text("The checkpoint '", path, "' has no file '", name, "', but ", join(files, ", "),
                          ". Set --part to one of them, without its ending."));
  }
  checkpoint.verify(name);
  return checkpoint.file(name).string();
}

}  // namespace libtrain::checkpoint_tool
