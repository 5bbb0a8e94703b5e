#include <algorithm>
#include <cctype>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/job.hpp>
#include <libtrain/launch/detail/resolve.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {
namespace {

/// The name in lower case; std::nullopt if it is invalid. The communicators check that the backend exists.
std::optional<std::string> backend_name(const std::string& value) {
  constexpr std::size_t kMaxName = 64;
  std::string name;
  for (const char c : value) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool usable = !name.empty() && name.size() <= kMaxName &&
                      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_:,") == std::string::npos;
  return usable ? std::optional{name} : std::nullopt;
}

Sourced<std::string> find_backend(const Environment& environment, const LaunchOptions& options) {
  const std::string variable = "AZ_BATCHAI_PYTORCH_BACKEND";
  if (options.dist_backend) {
    const auto name = backend_name(*options.dist_backend);
    if (name) return {*name, "--dist-backend"};
    throw UsageError(text("--dist-backend is ", detail::in_quotes(*options.dist_backend),
                          ", which is not a valid name. Use a name such as auto or gloo."));
  }
  if (const auto value = environment.get(variable)) {
    const auto name = backend_name(*value);
    if (name) return {*name, variable};
    throw EnvironmentError(text(variable, " is ", detail::in_quotes(*value), ", which is not a valid name. Unset it."));
  }
  return {"auto", "default"};
}

}  // namespace

Launch detect_launch(const Environment& environment, const LaunchOptions& options) {
  const auto resolution = detail::resolve(environment, options);
  Launch launch;
  launch.launcher = resolution.winner.launcher;
  launch.rank = *resolution.winner.rank;
  launch.world_size = *resolution.winner.world_size;
  launch.warnings = resolution.warnings;
  detail::find_locality(launch, resolution, environment, options);
  detail::find_job(launch, environment);
  detail::find_master(launch, environment);
  launch.backend = find_backend(environment, options);
  detail::find_rendezvous(launch, resolution, environment, options);
  return launch;
}

}  // namespace libtrain
