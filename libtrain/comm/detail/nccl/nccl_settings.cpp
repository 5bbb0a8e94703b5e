#include <libtrain/comm/detail/nccl/nccl_settings.hpp>

#include <cstdlib>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

std::string dotted(int version) {
  return text(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace

NcclSettings nccl_defaults(const Environment& environment) {
  NcclSettings defaults{{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}};
  std::erase_if(defaults, [&](const auto& one) { return environment.has(one.first); });
  return defaults;
}

std::string describe_nccl_settings(int version, const Environment& environment, const NcclSettings& defaults) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : environment.with_prefix("NCCL_")) {
    parts.push_back(text(name, '=', value, " (set by the user)"));
  }
  for (const auto& [name, value] : defaults) parts.push_back(text(name, '=', value, " (set by libtrain)"));
  return text("NCCL ", dotted(version), parts.empty() ? "" : " with ", join(parts, ", "));
}

const std::string& apply_nccl_settings(int version) {
  static const std::string description = [version] {
    const auto environment = Environment::of_process();
    const auto defaults = nccl_defaults(environment);
    for (const auto& [name, value] : defaults) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
    return describe_nccl_settings(version, environment, defaults);
  }();
  return description;
}

}  // namespace libtrain::detail
