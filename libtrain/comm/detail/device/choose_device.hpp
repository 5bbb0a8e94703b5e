#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>
#include <libtrain/comm/device_choice.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

struct DeviceRequest {
  const Launch& launch;
  DeviceChoice choice;
  std::string reason;  ///< what demands GPUs, for messages: "--device cuda"
};

/// The device of this rank, on which all ranks of `communicator` have agreed (see DeviceChoice and assign_gpus); they
/// must all call this. A GPU becomes the current device of the calling thread, and LibTorch's CUDA part is loaded on
/// ranks that have one. Unless the CPU was asked for, rank 0 logs the device and, if it is the CPU, why.
///
/// Throws on all ranks: UsageError and EnvironmentError as assign_gpus; EnvironmentError if LibTorch cannot use a GPU
/// that the driver shows.
at::Device choose_device(const DeviceRequest& request, Communicator& communicator);

/// The same, with a function that returns the GPUs of this process instead of visible_gpus() and LibTorch; it is not
/// called for DeviceChoice::cpu. Does not change the current device.
at::Device choose_device(const DeviceRequest& request, Communicator& communicator, VisibleGpus (*gpus_of_process)());

}  // namespace libtrain::detail
