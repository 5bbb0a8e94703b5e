#pragma once

#include <string>

namespace libtrain::detail {

/// Loads LibTorch's CUDA part, and with it NCCL, into this process, if the first call has not done so: programs are not
/// linked with it, because it takes 230 MB and 0.15 s, even without a GPU. Returns why it cannot be loaded, as the
/// loader reports it, or that this build has no CUDA; empty if it is loaded, and if there is no LibTorch in this
/// process.
///
/// Call it before the first call of LibTorch that asks for CUDA, such as torch::manual_seed(): LibTorch looks for its
/// CUDA part once, and never again. Any thread may call it.
const std::string& load_cuda_library();

}  // namespace libtrain::detail
