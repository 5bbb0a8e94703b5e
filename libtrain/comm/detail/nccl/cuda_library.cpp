#include <libtrain/comm/detail/nccl/cuda_library.hpp>

#include <dlfcn.h>
#include <link.h>

namespace libtrain::detail {

namespace {

std::string load() {
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return {};
  // The one in the folder of the loaded libtorch_cpu.so, not another one that the loader might find first.
  const link_map* map = nullptr;
  std::string path = dlinfo(torch, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
  path.replace(path.rfind('/') + 1, std::string::npos, "libtorch_cuda.so");
  // Same flags as if the program were linked with it.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  const char* const reason = dlerror();
  return reason == nullptr ? "unknown error" : reason;
}

}  // namespace

const std::string& load_cuda_library() {
  static const std::string problem = load();
  return problem;
}

}  // namespace libtrain::detail
