#pragma once

namespace libtrain::detail {

/// NCCL versions as one number, 22809 for 2.28.9; 0 in a build without CUDA. They differ if the loaded libnccl is not
/// the one that libtrain was built with.
struct NcclVersions {
  int built = 0;
  int loaded = 0;
};

NcclVersions nccl_versions();

}  // namespace libtrain::detail
