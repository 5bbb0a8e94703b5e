# NCCL: the very libnccl that the found LibTorch loads, then a system one. Never two in one process.
#
# Input:   LibTorch_PACKAGES_DIR (from FindLibTorch), NCCL_ROOT
# Output:  NCCL::NCCL, NCCL_VERSION

set(_nccl_hints "${LibTorch_PACKAGES_DIR}/nvidia/nccl" "${NCCL_ROOT}" "$ENV{NCCL_ROOT}")
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_nccl_hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS ${_nccl_hints} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" line REGEX "#define NCCL_${part} ")
    string(REGEX REPLACE ".*NCCL_${part} +([0-9]+).*" "\\1" NCCL_${part} "${line}")
  endforeach()
  set(NCCL_VERSION "${NCCL_MAJOR}.${NCCL_MINOR}.${NCCL_PATCH}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL SHARED IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
