#pragma once

#include <functional>
#include <memory>
#include <string>

#include <libtrain/comm/backend.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The backend for tensors on GPUs, one of which it gives each rank (see device_index); a build without CUDA has one
/// that says so.
Backend nccl_backend();

/// A communicator for CUDA tensors among all ranks of `control`, which must all call this; `device` is this rank's GPU,
/// the current one where it has no index. Where several ranks share a GPU, which NCCL cannot serve, tensors go through
/// host memory over `control`'s backend, with a warning on rank 0.
///
/// `on_failure` receives the reason when NCCL fails while the host is elsewhere (see NcclCommunicator): on another
/// thread, once. It may end the job. `set_up` bounds each step until the ranks are connected; without it the timeout of
/// `options` does.
///
/// Throws EnvironmentError on all ranks where one has no usable GPU or another libnccl than libtrain was built with,
/// and in a build without CUDA; CommunicationError on all ranks where NCCL cannot connect them within the timeout.
std::shared_ptr<Communicator> connect_nccl(Communicator& control, const at::Device& device,
                                           CommunicatorOptions options = {},
                                           std::function<void(const std::string& reason)> on_failure = {},
                                           const CallOptions& set_up = {});

}  // namespace libtrain::detail
