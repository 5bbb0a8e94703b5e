// How a training loop continues an earlier run.

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/train/detail/run_configuration.hpp>
#include <libtrain/train/detail/training_loop.hpp>
#include <libtrain/train/detail/work_on_root.hpp>

namespace libtrain::detail {

namespace {

namespace fs = std::filesystem;

// A checkpoint, a folder of checkpoints, or the `--output` of a run.
fs::path checkpoint_at(const fs::path& path, const fs::path& root) {
  if (fs::exists(path / kManifestName)) return path;
  // The same command, given again, after it has set that checkpoint aside with the others.
  std::error_code error;
  const auto named = (path / "").parent_path();  // without a slash at its end
  if (!fs::exists(named, error) && fs::weakly_canonical(named).parent_path() == fs::weakly_canonical(root)) {
    const auto aside = latest_set_aside(root, named.filename());
    if (!aside.empty() && fs::exists(aside / kManifestName)) return aside;
  }
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

struct ResumedRun {
  std::optional<CheckpointPosition> position = {};  // std::nullopt for a run that begins
  bool keeps_folder = true;                         // earlier checkpoints were not set aside
};

// Loads the checkpoint from which a Trainer continues, as `--resume` says, and says so on rank 0.
//
// - auto: the newest checkpoint of the run in `--output`. Throws UsageError if its configuration is another. Learning
//   rates and the decay of the average are not compared if the number of ranks has changed.
// - none: no checkpoint. Those in `--output` are set aside (see set_aside_checkpoints), with a warning.
// - PATH: that checkpoint, or the newest one in that folder, whatever its configuration. Unless it is the newest one
//   in `--output`, those in `--output` are set aside, where the same PATH finds it.
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
    const auto aside = is_first && !resumed.position ? latest_set_aside(root) : fs::path{};
    if (!aside.empty()) {
      log_warning(text("There is no checkpoint in '", root.string(),
                       "', so that a new run begins. Those of an earlier ", "run are in '", aside.string(),
                       "': to continue it, give --resume ", aside.string(), "."));
    }
  } else if (choice != "none") {
    run_on_root(context.communicator(),
                {.what = "Looking for a checkpoint", .run = [&] { folder = checkpoint_at(choice, root); }});
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

// The folder in a location of an object store, before the location's query.
std::string below(const std::string& location, const std::string& folder) {
  if (location.empty()) return {};
  const auto end = std::min(location.find('?'), location.size());
  auto path = location.substr(0, end);
  if (!path.ends_with('/')) path += '/';
  return path + folder + location.substr(end);
}

std::string name_of_metric(const TrainerCheckpoints& policy) {
  if (policy.metric.empty()) return {};
  return text(policy.metric, policy.best == CheckpointRetention::Best::highest ? ", highest" : ", lowest");
}

// The rates of the run that was saved, in proportion to those with which it and this run began. Without those of
// `then`, the saved ones.
std::vector<double> resumed_rates(std::vector<double> now, const std::vector<double>& then,
                                  const std::vector<double>& saved) {
  if (then.size() != saved.size() || now.size() != saved.size()) return saved;
  for (std::size_t index = 0; index < now.size(); ++index) {
    if (now[index] == then[index]) {
      now[index] = saved[index];
    } else if (then[index] > 0) {
      now[index] *= saved[index] / then[index];
    }
  }
  return now;
}

}  // namespace

void TrainingLoop::resume(const RunConfiguration& configuration) {
  context_.stop_request();  // from here on a signal does not end the process
  stop_agreement_.emplace(communicator());
  const auto& policy = options_.checkpoints;
  checkpoint_.emplace(
      communicator(), context_.output_directory() / policy.folder,
      CheckpointOptions{.failures_allowed = policy.failures_allowed,
                        .store = below(context_.checkpoint_store(), policy.folder),
                        .run_id = context_.run_id(),
                        .configuration = to_json(configuration),
                        .retention = {.last = policy.last, .metric = policy.metric, .best = policy.best}});
  std::map<std::string, std::vector<double>> initial_rates;
  for (const auto& part : parts_) {
    part->add_to(*checkpoint_);
    initial_rates.emplace(part->name(), part->rates());
  }
  for (auto& [name, state] : states_) checkpoint_->add(name, std::move(state));
  checkpoint_->add("trainer", std::make_unique<TrainerProgressPart>(progress_));

  const auto resumed = resume_run(*checkpoint_, context_, configuration);
  auto initial_rates_then = std::exchange(progress_->initial_rates, initial_rates);
  const auto metric_then = std::exchange(progress_->best_metric, name_of_metric(policy));
  if (!resumed.position) return;
  step() = resumed.position->step;
  epoch() = resumed.position->epoch;
  resumed_ = resumed.position->loader;
  // A checkpoint that is named on the command line is one to train on from.
  if (context_.resume() != "auto") progress_->was_ended = false;
  const bool is_other_metric = !metric_then.empty() && metric_then != progress_->best_metric;
  if (is_other_metric) progress_->evaluations_without_improvement = 0;
  if (resumed.keeps_folder) {
    saved_step_ = step();
    if (is_other_metric) progress_->best_step = -1;
    if (is_other_metric || progress_->best_step >= 0) find_best_checkpoint();
  } else {
    progress_->best_step = -1;  // its checkpoint is not in the folder
    progress_->mlflow_run.clear();
  }
  warn_of_lost_state();
  if (options_.schedule) return;
  for (const auto& part : parts_)
    part->set_rates(resumed_rates(initial_rates.at(part->name()), initial_rates_then[part->name()],
                                  progress_->rates[part->name()]));
}

// Its checkpoint may be on a disk that was lost, or not have been written. Then the best is the one that is kept for
// its value.
void TrainingLoop::find_best_checkpoint() {
  const auto known = progress_->best_step;
  const auto best = checkpoint_->keep_best(known);
  if (best && best->step == known) return;
  if (known >= 0 && context_.rank() == 0) {
    log_warning(text("The best checkpoint, that of step ", known, ", is not in '", checkpoint_->root().string(), "'",
                     context_.checkpoint_store().empty() ? "" : " or in the store", ". ",
                     best ? text("That of step ", best->step, " is the best now.") : "There is no other one."));
  }
  progress_->best_step = best ? best->step : -1;
  progress_->best_value = best ? best->value.value_or(0) : 0;
}

void TrainingLoop::warn_of_lost_state() const {
  const auto& format = options_.synchronizer.wire_format;
  if (context_.rank() != 0 || !format || !format->keeps_state()) return;
  log_warning(
      text("What '", format->name(),
           "' keeps between rounds is not in checkpoints: it begins anew, so that the run does not go on bit for "
           "bit."));
}

}  // namespace libtrain::detail
