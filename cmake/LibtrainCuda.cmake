# The CUDA compiler: CMAKE_CUDA_COMPILER or CUDACXX, else the wheel's beside LibTorch (its libraries lie where nvcc does
# not look for them), else one on PATH. Included by the top directory after find_package(LibTorch).

if(NOT TARGET LibTorch::cudart)
  message(FATAL_ERROR "LIBTRAIN_CUDA is ON but this LibTorch (${LibTorch_ROOT_DIR}) has no CUDA part, or its libcudart and cuda_runtime.h were not found: use a CUDA wheel with the nvidia-cuda-runtime and nvidia-cuda-crt wheels beside it, install the CUDA toolkit, or pass -DLIBTRAIN_CUDA=OFF.")
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS "${LibTorch_PACKAGES_DIR}/nvidia/cu13/bin" /usr/local/cuda/bin)
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  message(FATAL_ERROR "LIBTRAIN_CUDA is ON and no nvcc was found: run scripts/setup.sh, set CMAKE_CUDA_COMPILER, or pass -DLIBTRAIN_CUDA=OFF.")
endif()
if(CMAKE_CUDA_COMPILER MATCHES "^(.*/nvidia/cu13)/bin/nvcc$")
  set(flag "-L${CMAKE_MATCH_1}/lib")
  if(flag MATCHES " ")
    set(flag "\"${flag}\"")  # CMake 3.25 passes the quotes on to nvcc
  endif()
  string(APPEND CMAKE_CUDA_FLAGS_INIT " ${flag}")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75 80 90 100)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
set(CMAKE_CUDA_STANDARD 20)
enable_language(CUDA)
