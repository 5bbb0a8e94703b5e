#pragma once

#include <cstdint>
#include <string>

namespace libtrain::detail {

enum class WeightsFormat : std::uint8_t {
  safetensors,
  pth,  ///< the zip archives of torch.save
};

/// Recognises the format of a file of weights by its first bytes; its name does not matter, except that a file called
/// *.safetensors that resembles none is one whose reader says what is wrong. Throws EnvironmentError that names the
/// file for others, with advice for those that are mistaken for weights: torch.save's format before PyTorch 1.6, JSON.
WeightsFormat weights_format(const std::string& path);

}  // namespace libtrain::detail
