#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>

#include <tools/checkpoint/report.hpp>

namespace libtrain::checkpoint_tool {

/// Prints the checkpoints of a run, oldest first: `folder` is the run's --output, the folder of its checkpoints, or one
/// checkpoint. Damaged ones are part of the list, with the reason, as is a damaged best.json. Throws EnvironmentError
/// if it cannot be read.
void list(const std::string& folder, Report& report);

/// Reads all bytes of checkpoints (as for list(); all of a run) and of files of weights, and prints what is damaged.
/// ExitCode::environment if anything is, or if there is no checkpoint in a folder. Throws EnvironmentError if a path
/// does not exist.
ExitCode verify(const std::vector<std::string>& paths, Report& report);

/// Opens one checkpoint. Throws EnvironmentError, and UsageError for a folder that has several.
CheckpointFolder open_checkpoint(const std::string& folder);

/// The model.safetensors or pytorch_model.bin of a folder as transformers writes it, with a config.json; std::nullopt
/// for other paths and for a checkpoint.
std::optional<std::string> model_weights(const std::string& path);

/// The file that a command is to read: `path` itself or, if it is a folder, its model_weights() or, if it is a
/// checkpoint, its part `part`, which is verified. Throws as open_checkpoint(), and UsageError for another part than
/// the model of a folder with model_weights().
std::string weights_path(const std::string& path, const std::optional<std::string>& part);

inline constexpr const char* kConfigName = "config.json";  ///< of a model's folder
inline constexpr const char* kPartEnding = ".safetensors";
inline constexpr const char* kModelPart = "model";  ///< the part that is read if none is named

}  // namespace libtrain::checkpoint_tool
