#pragma once

#include <optional>

#include <libtrain/train/checkpoint.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/detail/run_configuration.hpp>

namespace libtrain::detail {

struct ResumedRun {
  std::optional<CheckpointPosition> position = {};  ///< std::nullopt for a run that begins
  bool keeps_folder = true;                         ///< earlier checkpoints were not set aside
};

/// Loads the checkpoint from which a Trainer continues, as `--resume` says, and says so on rank 0. All ranks must call
/// it.
///
/// - auto: the newest checkpoint of the run in `--output`. Throws UsageError if its configuration is another. Learning
///   rates and the decay of the average are not compared if the number of ranks has changed.
/// - none: no checkpoint. Those in `--output` are set aside (see set_aside_checkpoints), with a warning.
/// - PATH: that checkpoint, or the newest one in that folder, whatever its configuration. Unless it is the newest one
///   in `--output`, those in `--output` are set aside.
ResumedRun resume_run(Checkpoint& checkpoint, Context& context, const RunConfiguration& configuration);

}  // namespace libtrain::detail
