#include <libtrain/comm/detail/nccl/nccl_version.hpp>

#include <nccl.h>

namespace libtrain::detail {

NcclVersions nccl_versions() {
  NcclVersions versions{.built = NCCL_VERSION_CODE};
  if (ncclGetVersion(&versions.loaded) != ncclSuccess) versions.loaded = 0;
  return versions;
}

}  // namespace libtrain::detail
