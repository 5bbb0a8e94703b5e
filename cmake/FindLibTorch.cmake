# LibTorch out of a Python wheel (or an unpacked LibTorch zip), without its TorchConfig.cmake: that one needs a full CUDA
# toolkit as soon as the wheel was built for CUDA.
#
# Input:   LIBTRAIN_TORCH_ROOT  the `torch` folder (it holds include/ and lib/); default: the one in .deps, then the one
#          that `python3 -c "import torch"` finds. As a last resort find_package(Torch).
# Output:  LibTorch::LibTorch   everything to compile and link against
#          LibTorch::torch_cuda its CUDA part, where LIBTRAIN_CUDA is on: loads libtorch_cuda with the process
#          LibTorch::cudart     the CUDA runtime of that LibTorch, where LIBTRAIN_CUDA is on
#          LibTorch_ROOT_DIR, LibTorch_VERSION, LibTorch_CUDA (ON where the build has CUDA),
#          LibTorch_PACKAGES_DIR (the folder that holds torch/ and nvidia/)

set(LIBTRAIN_TORCH_ROOT "$ENV{LIBTRAIN_TORCH_ROOT}" CACHE PATH "Folder `torch` of a PyTorch wheel or LibTorch zip")

function(_libtorch_locate result)
  if(LIBTRAIN_TORCH_ROOT)
    set(${result} "${LIBTRAIN_TORCH_ROOT}" PARENT_SCOPE)
    return()
  endif()
  file(GLOB from_deps "${CMAKE_CURRENT_LIST_DIR}/../.deps/lib/python3*/site-packages/torch")
  if(from_deps)
    list(GET from_deps 0 from_deps)
    file(REAL_PATH "${from_deps}" from_deps)
    set(${result} "${from_deps}" PARENT_SCOPE)
    return()
  endif()
  find_program(LIBTRAIN_PYTHON NAMES python3 python)
  if(LIBTRAIN_PYTHON)
    execute_process(
      COMMAND "${LIBTRAIN_PYTHON}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(${result} "${from_python}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

_libtorch_locate(LibTorch_ROOT_DIR)
# What was found in another LibTorch must not be mixed with this one's headers.
if(DEFINED LibTorch_SEARCHED_ROOT AND NOT LibTorch_SEARCHED_ROOT STREQUAL LibTorch_ROOT_DIR)
  foreach(found INCLUDE_DIR CPU_LIBRARY C10_LIBRARY CUDA_LIBRARY C10_CUDA_LIBRARY VERSION_HEADER CUDART_LIBRARY CUDA_INCLUDE_DIR)
    unset(LibTorch_${found} CACHE)
  endforeach()
  unset(NCCL_INCLUDE_DIR CACHE)
  unset(NCCL_LIBRARY CACHE)
endif()
set(LibTorch_SEARCHED_ROOT "${LibTorch_ROOT_DIR}" CACHE INTERNAL "The LibTorch that the cached paths belong to")
find_path(LibTorch_INCLUDE_DIR torch/version.h
  PATHS "${LibTorch_ROOT_DIR}/include" "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include" NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_CUDA_LIBRARY
  LibTorch_C10_CUDA_LIBRARY)

if(NOT LibTorch_CPU_LIBRARY)
  find_package(Torch QUIET)
  if(Torch_FOUND AND NOT TARGET LibTorch::LibTorch)
    add_library(LibTorch::LibTorch INTERFACE IMPORTED)
    target_link_libraries(LibTorch::LibTorch INTERFACE ${TORCH_LIBRARIES})
    target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
    set(LibTorch_INCLUDE_DIR "${TORCH_INCLUDE_DIRS}")
    set(LibTorch_CPU_LIBRARY "${TORCH_LIBRARY}")
    set(LibTorch_VERSION "${Torch_VERSION}")
  endif()
endif()

if(LibTorch_INCLUDE_DIR AND NOT LibTorch_VERSION)
  find_file(LibTorch_VERSION_HEADER NAMES torch/headeronly/version.h torch/version.h
    PATHS "${LibTorch_ROOT_DIR}/include" "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include" NO_DEFAULT_PATH)
  mark_as_advanced(LibTorch_VERSION_HEADER)
  set(_parts "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${LibTorch_VERSION_HEADER}" line REGEX "define TORCH_VERSION_${part} ")
    string(REGEX REPLACE ".*TORCH_VERSION_${part} +([0-9]+).*" "\\1" line "${line}")
    list(APPEND _parts "${line}")
  endforeach()
  list(JOIN _parts "." LibTorch_VERSION)
endif()

set(LibTorch_CUDA OFF)
if(LIBTRAIN_CUDA AND LibTorch_CUDA_LIBRARY)
  set(LibTorch_CUDA ON)
endif()
get_filename_component(LibTorch_PACKAGES_DIR "${LibTorch_ROOT_DIR}" DIRECTORY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "no LibTorch found: run scripts/setup.sh, or point -DLIBTRAIN_TORCH_ROOT at the `torch` folder of a PyTorch wheel or an unpacked LibTorch zip.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LibTorch_ROOT_DIR}/include" "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include")
  # The wheel's libraries export an older std::filesystem of their own, whose remove_all crashes: the C++ library must
  # come before them when names are looked up.
  target_link_libraries(LibTorch::LibTorch INTERFACE
    -Wl,--push-state,--no-as-needed,-lstdc++,--pop-state "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}")
  # The wheel's libraries find their own NVIDIA neighbours by rpath at run time; the linker need not.
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,--allow-shlib-undefined)
  if(LibTorch_CUDA)
    # Not libtorch_cuda: libtrain/comm/detail/nccl/cuda_library.cpp loads it where there is a driver.
    target_link_libraries(LibTorch::LibTorch INTERFACE "${LibTorch_C10_CUDA_LIBRARY}")
    add_library(LibTorch::torch_cuda INTERFACE IMPORTED)
    target_link_libraries(LibTorch::torch_cuda INTERFACE LibTorch::LibTorch "${LibTorch_CUDA_LIBRARY}")
  endif()
endif()

# The CUDA runtime that LibTorch itself loads, by full path: never a second one.
if(LibTorch_CUDA AND NOT TARGET LibTorch::cudart)
  set(_cuda "${LibTorch_PACKAGES_DIR}/nvidia/cu13")
  if(EXISTS "${_cuda}/include/cuda_runtime.h" AND EXISTS "${_cuda}/lib/libcudart.so.13")
    set(LibTorch_CUDA_INCLUDE_DIR "${_cuda}/include")  # also where an environment module has set CMAKE_PREFIX_PATH
    set(LibTorch_CUDART_LIBRARY "${_cuda}/lib/libcudart.so.13")
  else()
    set(_cuda "$ENV{CUDA_HOME}" /usr/local/cuda)
    find_library(LibTorch_CUDART_LIBRARY NAMES libcudart.so.13 cudart HINTS ${_cuda} PATH_SUFFIXES lib lib64)
    find_path(LibTorch_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ${_cuda} PATH_SUFFIXES include)
  endif()
  mark_as_advanced(LibTorch_CUDART_LIBRARY LibTorch_CUDA_INCLUDE_DIR)
  if(LibTorch_CUDART_LIBRARY AND LibTorch_CUDA_INCLUDE_DIR)
    add_library(LibTorch::cudart INTERFACE IMPORTED)
    target_include_directories(LibTorch::cudart SYSTEM INTERFACE "${LibTorch_CUDA_INCLUDE_DIR}")
    target_link_libraries(LibTorch::cudart INTERFACE "${LibTorch_CUDART_LIBRARY}")
  endif()
endif()
