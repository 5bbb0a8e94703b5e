#include <algorithm>
#include <cctype>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/job.hpp>
#include <libtrain/launch/detail/resolve.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {
namespace {

/// In lower case. Which names exist, and which were compiled in, only the communicators know.
std::optional<std::string> backend_name(const std::string& value) {
  constexpr std::size_t longest = 64;
  std::string name;
  for (const char c : value) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool usable = !name.empty() && name.size() <= longest &&
                      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_:,") == std::string::npos;
  return usable ? std::optional{name} : std::nullopt;
}

Sourced<std::string> find_backend(const Environment& environment, const LaunchOptions& options) {
  const std::string variable = "AZ_BATCHAI_PYTORCH_BACKEND";
  if (options.dist_backend) {
    const auto name = backend_name(*options.dist_backend);
    if (name) return {*name, "--dist-backend"};
    throw UsageError(text("--dist-backend is ", detail::quoted(*options.dist_backend), ", which is not a name."));
  }
  if (const auto value = environment.get(variable)) {
    const auto name = backend_name(*value);
    if (name) return {*name, variable};
    throw EnvironmentError(text(variable, " is ", detail::quoted(*value), ", which is not a name: unset it."));
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
