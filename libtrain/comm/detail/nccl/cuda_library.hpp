#pragma once

/// Why LibTorch cannot compute on GPUs although this machine has CUDA's driver, as the loader says it; empty where it
/// can, and where there is no driver or no LibTorch in this process.
///
/// Programs are not linked with libtorch_cuda, which takes 230 MB and 0.15 s, also without a GPU. It is loaded before
/// main() where the machine has the driver: LibTorch looks for it once, at its first use, and never again. Executables
/// are linked with --undefined (libtrain/comm/CMakeLists.txt), since a program may use CUDA without calling this.
extern "C" const char* libtrain_cuda_library_problem();
