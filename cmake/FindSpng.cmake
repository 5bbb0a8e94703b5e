# libspng, which brings no CMake package.
#
# Output:  spng::spng, Spng_VERSION

find_path(Spng_INCLUDE_DIR spng.h)
find_library(Spng_LIBRARY spng)
mark_as_advanced(Spng_INCLUDE_DIR Spng_LIBRARY)
if(Spng_INCLUDE_DIR)
  file(STRINGS "${Spng_INCLUDE_DIR}/spng.h" lines REGEX "#define SPNG_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" Spng_VERSION "${lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Spng REQUIRED_VARS Spng_LIBRARY Spng_INCLUDE_DIR VERSION_VAR Spng_VERSION)

if(Spng_FOUND AND NOT TARGET spng::spng)
  add_library(spng::spng UNKNOWN IMPORTED)
  set_target_properties(spng::spng PROPERTIES
    IMPORTED_LOCATION "${Spng_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Spng_INCLUDE_DIR}")
endif()
