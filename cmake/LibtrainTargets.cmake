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
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LIBTRAIN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1>)
    target_link_options(${target} PUBLIC -fsanitize=${LIBTRAIN_SANITIZE})
  endif()
endfunction()

# Gives a target over LibTorch the options above and the library's precompiled header.
function(libtrain_configure_torch_target target)
  libtrain_compile_options(${target})
  if(LIBTRAIN_PRECOMPILED_HEADER)
    target_precompile_headers(${target} REUSE_FROM libtrain)
  endif()
endfunction()

function(libtrain_add_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES})
  libtrain_configure_torch_target(${target})
endfunction()
