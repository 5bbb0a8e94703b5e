#pragma once

namespace libtrain::test {

/// Sanitizers keep for a while what was freed, keep books in memory of their own, look for leaks themselves, and take
/// several times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// ThreadSanitizer gives up where the child of a process that had threads starts its own.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

}  // namespace libtrain::test
