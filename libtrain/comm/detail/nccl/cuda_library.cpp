#include <libtrain/comm/detail/nccl/cuda_library.hpp>

#include <dlfcn.h>
#include <link.h>

#include <string>

namespace {

std::string load() {
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr || dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) return {};
  // The neighbour of the library that this program runs with, not another one that the loader might find first.
  const link_map* map = nullptr;
  std::string path = dlinfo(torch, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
  path.replace(path.rfind('/') + 1, std::string::npos, "libtorch_cuda.so");
  // As if the program were linked with it.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  const char* const reason = dlerror();
  return reason == nullptr ? "unknown error" : reason;
}

// Before main(), and before what the program's other files do with LibTorch then.
__attribute__((constructor(101))) void load_before_main() {
  libtrain_cuda_library_problem();
}

}  // namespace

const char* libtrain_cuda_library_problem() {
  static const std::string problem = load();
  return problem.c_str();
}
