#include <libtrain/comm/detail/nccl/nccl_version.hpp>

namespace libtrain {

NcclVersions nccl_versions() {
  return {};
}

}  // namespace libtrain
