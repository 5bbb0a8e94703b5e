#pragma once

#include <optional>
#include <string>

#include <c10/util/Exception.h>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

/// A failure of a GPU, from an exception of LibTorch.
struct GpuFailure {
  ExitCode code = ExitCode::failure;
  std::string message;  ///< names the GPU and says what to do
};

/// std::nullopt for an exception that does not report a failure of a GPU. ExitCode::environment if the machine is at
/// fault (a GPU that is full, used by another process, or lost); ExitCode::failure for a kernel that accessed wrong
/// memory or found wrong data. The GPU is the current one of the calling thread.
std::optional<GpuFailure> gpu_failure_of(const c10::Error& error);

}  // namespace libtrain::detail
