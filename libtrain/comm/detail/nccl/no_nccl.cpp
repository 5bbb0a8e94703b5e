#include <libtrain/comm/detail/nccl/cuda_library.hpp>
#include <libtrain/comm/detail/nccl/nccl_version.hpp>

namespace libtrain {

detail::NcclVersions detail::nccl_versions() {
  return {};
}

const std::string& detail::load_cuda_library() {
  static const std::string problem = "this libtrain was built without CUDA";
  return problem;
}

}  // namespace libtrain
