# Apache Arrow C++ (and Parquet) out of the pyarrow wheel, whose libraries carry a version suffix and come without a
# CMake package; then a system Arrow.
#
# Input:   LIBTRAIN_ARROW_ROOT  the `pyarrow` folder of a wheel; default: beside the found LibTorch
# Output:  Arrow::Arrow, Arrow_VERSION

set(LIBTRAIN_ARROW_ROOT "" CACHE PATH "Folder `pyarrow` of a pyarrow wheel")
set(_arrow_root "${LIBTRAIN_ARROW_ROOT}")
if(NOT _arrow_root)
  set(_arrow_root "${LibTorch_PACKAGES_DIR}/pyarrow")
endif()

# The wheel alone first, and not cached, so that its libraries never meet the headers of a system or an earlier wheel.
if(EXISTS "${_arrow_root}/include/arrow/api.h")
  set(Arrow_INCLUDE_DIR "${_arrow_root}/include")
else()
  find_path(Arrow_INCLUDE_DIR arrow/api.h)
endif()
# S3 is a library of its own since Arrow 26.
foreach(name arrow arrow_s3 parquet)
  file(GLOB candidates "${_arrow_root}/lib${name}.so.*")
  list(FILTER candidates EXCLUDE REGEX "\\.so\\.[0-9]+\\.")
  string(TOUPPER ${name} upper)
  if(candidates)
    list(GET candidates 0 Arrow_${upper}_LIBRARY)
  else()
    find_library(Arrow_${upper}_LIBRARY ${name})
  endif()
endforeach()
mark_as_advanced(Arrow_INCLUDE_DIR Arrow_ARROW_LIBRARY Arrow_ARROW_S3_LIBRARY Arrow_PARQUET_LIBRARY)

if(Arrow_INCLUDE_DIR)
  file(STRINGS "${Arrow_INCLUDE_DIR}/arrow/util/config.h" line REGEX "#define ARROW_VERSION_STRING ")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" Arrow_VERSION "${line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Arrow
  REQUIRED_VARS Arrow_ARROW_LIBRARY Arrow_PARQUET_LIBRARY Arrow_INCLUDE_DIR VERSION_VAR Arrow_VERSION)

if(Arrow_FOUND AND NOT TARGET Arrow::Arrow)
  add_library(Arrow::Arrow INTERFACE IMPORTED)
  target_include_directories(Arrow::Arrow SYSTEM INTERFACE "${Arrow_INCLUDE_DIR}")
  target_link_libraries(Arrow::Arrow INTERFACE
    "${Arrow_ARROW_LIBRARY}" "$<$<BOOL:${Arrow_ARROW_S3_LIBRARY}>:${Arrow_ARROW_S3_LIBRARY}>" "${Arrow_PARQUET_LIBRARY}")
  # A program that reads nothing remote does not load them.
  target_link_options(Arrow::Arrow INTERFACE LINKER:--as-needed)
endif()
