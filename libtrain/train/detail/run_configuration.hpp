#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

/// What decides the result of a run: names, such as "--batch-size", with their values.
using RunConfiguration = std::map<std::string, std::string>;

/// In the names of learning rates, which programs may scale by the number of ranks.
inline constexpr const char* kRateOfGroup = ".learning_rate.";

/// The decay of the moving average, which they may scale, too.
inline constexpr const char* kAverageDecay = "moving_average.decay";

/// As a JSON object, for CheckpointManifest::configuration. Secrets are masked.
std::string to_json(const RunConfiguration& configuration);

/// How the configuration of a run differs from that of the run that wrote a checkpoint, of which `json` is to_json():
/// "--batch-size is 32 and was 64". Secrets, which are masked, are not compared. Throws EnvironmentError for a text
/// that to_json() does not write.
std::vector<std::string> differences(const RunConfiguration& configuration, std::string_view json);

}  // namespace libtrain::detail
