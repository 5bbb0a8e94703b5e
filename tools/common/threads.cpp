#include <tools/common/threads.hpp>

#include <algorithm>

#include <libtrain/base/detail/machine.hpp>

namespace libtrain::tools {

int default_threads() {
  auto cores = static_cast<double>(detail::usable_cores().size());
  if (const auto quota = detail::cpu_quota()) cores = std::min(cores, *quota);
  return std::clamp(static_cast<int>(cores), 1, kMaxThreads);
}

}  // namespace libtrain::tools
