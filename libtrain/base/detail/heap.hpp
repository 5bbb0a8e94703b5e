#pragma once

namespace libtrain::detail {

/// Lets malloc keep what a program frees, in huge pages where the kernel has them ("madvise" or "always" in
/// /sys/kernel/mm/transparent_hugepage/enabled). By itself it returns freed memory to the kernel, which clears each
/// page again in the next step: a tenth of the time of a ResNet's step. The peak of the memory hardly
/// changes, but a process keeps it to its end.
///
/// For the main thread of a program, before its large blocks. Later calls have no effect, and nor has one if an
/// environment variable says how malloc is to behave (GLIBC_TUNABLES, MALLOC_*_) or another library has replaced it,
/// and with other C libraries than glibc.
void keep_heap();

}  // namespace libtrain::detail
