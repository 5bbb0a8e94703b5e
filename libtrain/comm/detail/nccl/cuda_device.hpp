#pragma once

namespace libtrain::detail {

/// The calls of the CUDA runtime that NcclComm makes, so that a test without a driver can take their place.

/// Makes `device` the current device of this thread, which is a new one: it has device 0, on which its first CUDA call
/// would create a context. Also keeps the thread's calls from invalidating the graphs that other threads record
/// (cudaStreamCaptureModeThreadLocal).
void enter_cuda_thread(int device) noexcept;

/// While a process exits, the CUDA runtime may be unloaded before libtrain's communicators: NCCL must not be called
/// then.
bool cuda_is_unloading() noexcept;

}  // namespace libtrain::detail
