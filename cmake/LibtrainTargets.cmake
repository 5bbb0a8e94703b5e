# What every target of the project shares.

# Warnings are errors on our own files; foreign headers come in as system headers. Designated initialisers leave members
# to their defaults on purpose; GCC 12 sees overlaps and overflows in std::string that are not there (GCC bug 105651).
set(LIBTRAIN_WARNINGS -Wall -Wextra -Wconversion -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND LIBTRAIN_WARNINGS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(LIBTRAIN_WERROR)
  list(APPEND LIBTRAIN_WARNINGS -Werror)
endif()

function(libtrain_compile_options target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${LIBTRAIN_WARNINGS}>")
  if(LIBTRAIN_SANITIZE)
    # No check of vptr: it opens a pipe, which tests of a process without descriptors refuse it. With sanitizers gcc
    # takes the copy of an empty std::optional for one of uninitialized memory.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LIBTRAIN_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1
        $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>>)
    target_link_options(${target} PUBLIC -fsanitize=${LIBTRAIN_SANITIZE})
  endif()
endfunction()

# libtrain_use_in_sources(<target> LIBRARIES <library>... SOURCES <source>...)
# Links the target with foreign libraries whose headers and options only some of its sources get. All other sources are
# compiled the same way in a build without the libraries, and ccache finds them there.
function(libtrain_use_in_sources target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;SOURCES")
  foreach(library IN LISTS arg_LIBRARIES)
    get_target_property(folders ${library} INTERFACE_INCLUDE_DIRECTORIES)
    get_target_property(definitions ${library} INTERFACE_COMPILE_DEFINITIONS)
    get_target_property(options ${library} INTERFACE_COMPILE_OPTIONS)
    foreach(found folders definitions options)
      if(NOT ${found})
        set(${found} "")
      endif()
    endforeach()
    list(TRANSFORM folders PREPEND "-isystem")
    set_property(SOURCE ${arg_SOURCES} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS ${folders} ${options})
    set_property(SOURCE ${arg_SOURCES} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_DEFINITIONS ${definitions})
    target_link_libraries(${target} INTERFACE $<LINK_ONLY:${library}>)
  endforeach()
endfunction()

# Gives a target over LibTorch the options above and all of LibTorch's headers, precompiled: for tests, benchmarks and
# examples, which include them all. Reading them takes 10 s a file, and making them as long as three files take without
# them: the library's own files, which include little of LibTorch, are compiled faster by themselves.
function(libtrain_configure_torch_target target)
  if(NOT TARGET libtrain_torch_headers)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/torch_headers.cpp" CONTENT "")
    add_library(libtrain_torch_headers OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/torch_headers.cpp")
    target_link_libraries(libtrain_torch_headers PRIVATE libtrain_core LibTorch::LibTorch)
    libtrain_compile_options(libtrain_torch_headers)
    target_precompile_headers(libtrain_torch_headers PRIVATE <torch/torch.h>)
  endif()
  libtrain_compile_options(${target})
  target_precompile_headers(${target} REUSE_FROM libtrain_torch_headers)
endfunction()

function(libtrain_add_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES})
  libtrain_configure_torch_target(${target})
endfunction()
