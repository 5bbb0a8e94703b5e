#pragma once

/// Compiles a function for several instruction sets; the best one is chosen when the program is loaded, so that one
/// binary runs well on every processor. x86-64-v3 rather than "avx2", which would leave out FMA and F16C.
///
/// Sanitizers cannot run inside the resolver that picks a clone while the program is being loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define LIBTRAIN_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LIBTRAIN_VECTOR_CLONES
#endif

/// For functions that vector clones call: only inlined code is compiled for the instruction set of the clone.
#define LIBTRAIN_INLINED inline __attribute__((always_inline))
