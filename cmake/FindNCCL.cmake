# NCCL: the very libnccl that the found LibTorch loads, then a system one. Never two in one process.
#
# Input:   LibTorch_PACKAGES_DIR (from FindLibTorch), NCCL_ROOT
# Output:  NCCL::NCCL, NCCL_VERSION

set(_nccl "${LibTorch_PACKAGES_DIR}/nvidia/nccl")
if(EXISTS "${_nccl}/include/nccl.h" AND EXISTS "${_nccl}/lib/libnccl.so.2")
  set(NCCL_INCLUDE_DIR "${_nccl}/include")  # also where an environment module has set NCCL_ROOT or CMAKE_PREFIX_PATH
  set(NCCL_LIBRARY "${_nccl}/lib/libnccl.so.2")
else()
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${NCCL_ROOT}" "$ENV{NCCL_ROOT}" PATH_SUFFIXES include)
  find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${NCCL_ROOT}" "$ENV{NCCL_ROOT}" PATH_SUFFIXES lib lib64)
endif()
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
