#include <dlfcn.h>
#include <link.h>

#include <string>

// Why LibTorch cannot use GPUs although this machine has CUDA's driver, as the loader reports it; empty if it can, and
// if there is no driver or no LibTorch in this process. connect_nccl.cpp declares it, too.
//
// Programs are not linked with libtorch_cuda, which takes 230 MB and 0.15 s, even without a GPU. It is loaded before
// main() if the machine has the driver: LibTorch looks for it once, at its first use, and never again. Executables are
// linked with --undefined (libtrain/comm/CMakeLists.txt), since a program may use CUDA without calling this.
extern "C" const char* libtrain_cuda_library_problem();

namespace {

std::string load() {
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr || dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) return {};
  // The one in the folder of the loaded libtorch_cpu.so, not another one that the loader might find first.
  const link_map* map = nullptr;
  std::string path = dlinfo(torch, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
  path.replace(path.rfind('/') + 1, std::string::npos, "libtorch_cuda.so");
  // Same flags as if the program were linked with it.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  const char* const reason = dlerror();
  return reason == nullptr ? "unknown error" : reason;
}

// Before main() and the program's other static initialisers, which may use LibTorch.
__attribute__((constructor(101))) void load_before_main() {
  libtrain_cuda_library_problem();
}

}  // namespace

const char* libtrain_cuda_library_problem() {
  static const std::string problem = load();
  return problem.c_str();
}
