#include <libtrain/train/detail/trainer_resume.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>
#include <libtrain/comm/detail/agreement.hpp>

namespace libtrain::detail {

namespace {

namespace fs = std::filesystem;

// A checkpoint, a folder of checkpoints, or the `--output` of a run.
fs::path checkpoint_at(const fs::path& path, const fs::path& root) {
  if (fs::exists(path / kManifestName)) return path;
  for (const auto& folder : {path, path / root.filename()}) {
    if (!fs::is_directory(folder)) continue;
    auto found = find_newest_checkpoint(folder);
    for (const auto& problem : found.passed_over) log_warning(text("A checkpoint is passed over: ", problem));
    if (found.checkpoint) return found.checkpoint->path();
  }
  throw EnvironmentError(text("--resume: there is no checkpoint in '", path.string(),
                              "'. Give the folder of a checkpoint, such as outputs/checkpoints/step-00001000."));
}

bool is_newest(const fs::path& folder, const fs::path& root) {
  std::optional<fs::path> newest;
  for (const auto& checkpoint : list_checkpoints(root))
    if (checkpoint.is_complete()) newest = checkpoint.folder;
  std::error_code error;
  return newest && fs::equivalent(*newest, folder, error);
}

void set_aside(const fs::path& root) {
  if (const auto former = set_aside_checkpoints(root)) {
    log_warning(text("The checkpoints of the earlier run in '", root.string(), "' are now in '", former->string(),
                     "'. Remove that folder if you do not need them."));
  }
}

std::vector<std::string> differences_from(const CheckpointManifest& manifest, const RunConfiguration& configuration,
                                          const Context& context) {
  auto found = differences(configuration, manifest.configuration);
  if (manifest.world_size != context.world_size())
    std::erase_if(found, [](const auto& each) {
      return each.find(kRateOfGroup) != std::string::npos || each.starts_with(kAverageDecay);
    });
  return found;
}

void require_same_configuration(const std::vector<std::string>& found, const fs::path& root) {
  if (found.empty()) return;
  throw UsageError(text("The run in '", root.parent_path().string(), "' has another configuration: ", join(found, ", "),
                        ". To continue it all the same, add --resume ", root.string(),
                        "; to start a new run, choose another --output, or add --resume none."));
}

void report(const CheckpointManifest& manifest, const std::vector<std::string>& found, const Context& context,
            const fs::path& from) {
  if (context.rank() != 0) return;
  log_info(text("Loaded the checkpoint of step ", manifest.step, " in '", from.string(), "'",
                found.empty() ? "" : ", whose configuration differs: ", join(found, ", "), "."));
  if (manifest.world_size == context.world_size()) return;
  log_warning(text("The run had ", manifest.world_size, " ranks and continues with ", context.world_size(),
                   ": the order of the samples is the same, and a step has ", context.world_size(), "/",
                   manifest.world_size, " of the samples unless the batch size changes, too."));
}

}  // namespace

ResumedRun resume_run(Checkpoint& checkpoint, Context& context, const RunConfiguration& configuration) {
  const auto& root = checkpoint.root();
  const auto& choice = context.resume();
  const bool is_automatic = choice == "auto";
  const bool is_first = context.rank() == 0;
  if (!is_automatic && !context.checkpoint_store().empty()) {
    throw UsageError(text("--resume ", choice,
                          " does not go with --checkpoint-store, where checkpoints of the earlier run may be. "
                          "For another run, choose another --output and another --checkpoint-store."));
  }
  std::optional<CheckpointManifest> found;
  const auto accept = [&](const CheckpointManifest& manifest) {
    if (is_automatic) require_same_configuration(differences_from(manifest, configuration, context), root);
    found = manifest;
  };
  ResumedRun resumed{.keeps_folder = is_automatic};
  fs::path folder;  // of rank 0, for --resume PATH
  if (is_automatic) {
    resumed.position = checkpoint.load_latest(accept);
  } else if (choice != "none") {
    run_together(context.communicator(), "Looking for a checkpoint", [&] {
      if (is_first) folder = checkpoint_at(choice, root);
    });
    resumed.position = checkpoint.load(folder, accept);
    resumed.keeps_folder =
        !context.communicator().broadcast_bytes(is_first && is_newest(folder, root) ? "yes" : "", 0).empty();
  }
  run_together(context.communicator(), "Setting earlier checkpoints aside", [&] {
    if (is_first && !resumed.keeps_folder) set_aside(root);
  });
  if (found) report(*found, differences_from(*found, configuration, context), context, is_automatic ? root : folder);
  return resumed;
}

}  // namespace libtrain::detail
