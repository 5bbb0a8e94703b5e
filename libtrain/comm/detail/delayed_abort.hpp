#pragma once

#include <functional>

namespace libtrain::detail {

/// Calls `abort` after 5 s, on a thread of its own, unless the process has ended by then. For communicators that are
/// destroyed while an exception unwinds the stack: this rank reports the exception only afterwards, and until then its
/// peers must neither learn that it has left nor report that instead. `abort` must own what it uses.
void abort_after_report(std::function<void()> abort) noexcept;

}  // namespace libtrain::detail
