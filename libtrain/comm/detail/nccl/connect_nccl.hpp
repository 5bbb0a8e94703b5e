#pragma once

#include <functional>
#include <memory>
#include <string>

#include <libtrain/comm/backend.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The backend for tensors on GPUs; each rank uses one GPU (see DeviceChoice). In a build without CUDA it reports that
/// it is unavailable.
Backend nccl_backend();

/// A communicator for CUDA tensors of all ranks of `control`, which must all call this. `device` is this rank's GPU,
/// the current one if it has no index. If several ranks share a GPU, which NCCL does not support, tensors go through
/// host memory over `control`'s backend, with a warning on rank 0.
///
/// `on_failure` receives the reason if NCCL fails while no thread waits for it (see DeviceCommunicator): on another
/// thread, once. It may end the job. `set_up` has the timeout of each step until the ranks are connected; the default
/// is that of `options`.
///
/// Throws EnvironmentError on all ranks if any rank has no usable GPU or an incompatible libnccl, and in a build
/// without CUDA; CommunicationError on all ranks if NCCL cannot connect them within the timeout.
std::shared_ptr<Communicator> connect_nccl(Communicator& control, const at::Device& device,
                                           CommunicatorOptions options = {},
                                           std::function<void(const std::string& reason)> on_failure = {},
                                           const CallOptions& set_up = {});

/// A group of one rank with a GPU, which knows whether a stream is recording a CUDA graph.
std::shared_ptr<Communicator> single_gpu(const at::Device& device);

}  // namespace libtrain::detail
