#pragma once

namespace libtrain::models::detail {

/// Does nothing: a call keeps the linker from leaving out the file that registers the operators' kernels for GPUs.
void link_cuda_operators();

}  // namespace libtrain::models::detail
