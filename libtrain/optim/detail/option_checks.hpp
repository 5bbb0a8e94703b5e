#pragma once

#include <cmath>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::optim::detail {

/// Throws UsageError unless `value` of the option `name` is a finite number, 0 or more.
inline void require_not_negative(double value, std::string_view name) {
  if (value >= 0 && std::isfinite(value)) return;
  throw UsageError(text(name, " is ", value, "; it must be a finite number, 0 or more."));
}

}  // namespace libtrain::optim::detail
