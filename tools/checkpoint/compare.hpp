#pragma once

#include <optional>
#include <string>

#include <libtrain/base/error.hpp>

#include <tools/checkpoint/report.hpp>

namespace libtrain::checkpoint_tool {

/// Compares two checkpoints, all files of them or one part, or two files of weights, bit for bit, and prints what
/// differs; a checkpoint beside a file stands for `part`, or for its model. Two tensors are in memory at a time.
///
/// ExitCode::failure, which is 1 as for diff, if anything differs. Throws EnvironmentError, also for damaged
/// checkpoints, and UsageError for a folder that has several.
ExitCode compare(const std::string& first, const std::string& second, const std::optional<std::string>& part,
                 Report& report);

}  // namespace libtrain::checkpoint_tool
