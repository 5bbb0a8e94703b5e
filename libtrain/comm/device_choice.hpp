#pragma once

namespace libtrain {

/// Where the ranks of a job compute: `--device`. All ranks make the same choice.
enum class DeviceChoice {
  automatic,  ///< on GPUs if every rank has one, on the CPU if no rank has one, otherwise an error on all ranks
  cpu,        ///< on the CPU; CUDA's driver is not loaded
  cuda,       ///< on GPUs; an error on all ranks if a rank has none
};

}  // namespace libtrain
