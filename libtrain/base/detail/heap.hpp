#pragma once

namespace libtrain::detail {

/// Lets malloc keep what a program frees, in huge pages where the kernel has them ("madvise" or "always" in
/// /sys/kernel/mm/transparent_hugepage/enabled). By default malloc returns freed memory to the kernel, which clears
/// each page again in the next step: a tenth of the time of a ResNet's step. The peak memory hardly changes, but a
/// process keeps it until it ends.
///
/// Call it in the main thread of a program, before large allocations. It does nothing in other threads, after the first
/// call, if LD_PRELOAD or a variable of glibc's malloc (GLIBC_TUNABLES, MALLOC_ARENA_MAX, MALLOC_TRIM_THRESHOLD_ and so
/// on) is set, under sanitizers, and with other C libraries than glibc.
void keep_heap();

}  // namespace libtrain::detail
