#include <libtrain/launch/detail/resolve.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/host.hpp>
#include <libtrain/launch/detail/launchers.hpp>

namespace libtrain::detail {
namespace {

constexpr std::string_view kInitMethod = "AZ_BATCHAI_PYTORCH_INIT_METHOD";

Sourced<std::string> over_tcp(const Launch& launch) {
  if (!launch.master_address.value) {
    throw EnvironmentError(text("Rank ", launch.rank.value, " of ", launch.world_size.value, " (",
                                to_string(launch.launcher),
                                ") must connect to the other ranks over TCP, but no variable or option gives the host "
                                "of rank 0. Set MASTER_ADDR and MASTER_PORT, or give --dist-url."));
  }
  return {"tcp://" + join_host_port(*launch.master_address.value, *launch.master_port.value),
          launch.master_address.source + ", " + launch.master_port.source};
}

/// std::nullopt for a URL that is none of the three kinds.
std::optional<std::string> parse_url(const std::string& url, const Launch& launch) {
  constexpr std::size_t kMaxUrl = 4096;
  const bool has_control = std::any_of(url.begin(), url.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (has_control || url.size() > kMaxUrl) return std::nullopt;
  const std::string_view view = url;
  if (view == "env://") return over_tcp(launch).value;
  if (view.starts_with("file:///")) return view.size() > 8 ? std::optional{url} : std::nullopt;
  if (!view.starts_with("tcp://")) return std::nullopt;
  auto address = view.substr(6);
  if (address.ends_with('/')) address.remove_suffix(1);
  const auto parsed = parse_host_port(address);
  if (!parsed || !parsed->port) return std::nullopt;
  return "tcp://" + join_host_port(parsed->host, *parsed->port);
}

Sourced<std::string> from_url(const std::string& url, const std::string& source, const Launch& launch) {
  const auto parsed = parse_url(url, launch);
  const auto message = [&] {
    return text(source, " is ", in_quotes(url), ". Set it to tcp://host:port, file:///absolute/path or env://.");
  };
  if (!parsed && source.starts_with("--")) throw UsageError(message());
  if (!parsed) throw EnvironmentError(message());
  return {*parsed, url == "env://" ? source + " (env://), " + over_tcp(launch).source : source};
}

/// The variables of a launcher with which MPI_Init connects these ranks; null if there is none.
const LauncherVariables* find_mpi(const Resolution& resolution) {
  const auto speaks_mpi = [](const LauncherVariables& found) {
    return found.launcher != Launcher::single && reader_of(found.launcher).speaks_mpi;
  };
  if (speaks_mpi(resolution.winner)) return &resolution.winner;
  const auto found = std::find_if(resolution.agreeing.begin(), resolution.agreeing.end(), speaks_mpi);
  return found == resolution.agreeing.end() ? nullptr : &*found;
}

Sourced<std::string> choose(const Launch& launch, const Resolution& resolution, const Environment& environment,
                            const LaunchOptions& options) {
  if (options.dist_url) {
    auto chosen = from_url(*options.dist_url, "--dist-url", launch);
    if (launch.world_size.value > 1) return chosen;
  }
  if (launch.world_size.value == 1) return {"none", "one process"};
  // A user who selects gloo may have an MPI that does not work.
  const bool without_mpi = launch.backend.value == "gloo" || launch.backend.value == "tcp";
  const auto* mpi = without_mpi ? nullptr : find_mpi(resolution);
  if (mpi != nullptr) return {"mpi", mpi->world_size->source};
  const auto init_method = environment.get(kInitMethod);
  const bool follows_job = launch.launcher == Launcher::explicit_options || launch.launcher == Launcher::azure_batchai;
  const bool no_master = launch.launcher == Launcher::plain && !environment.has("MASTER_ADDR");
  if (init_method && (follows_job || no_master)) return from_url(*init_method, std::string{kInitMethod}, launch);
  return over_tcp(launch);
}

}  // namespace

void find_rendezvous(Launch& launch, const Resolution& resolution, const Environment& environment,
                     const LaunchOptions& options) {
  launch.rendezvous = choose(launch, resolution, environment, options);
  const bool several_nodes = launch.node_count.value.value_or(1) > 1;
  const auto& master = launch.master_address.value;
  if (several_nodes && master && is_loopback(*master) && launch.rendezvous.value.starts_with("tcp://")) {
    launch.warnings.push_back(text(launch.master_address.source, " is ", in_quotes(*master), " in a job of ",
                                   *launch.node_count.value,
                                   " nodes: ranks on other nodes cannot reach rank 0 at that address. Set MASTER_ADDR "
                                   "to the host of rank 0."));
  }
}

}  // namespace libtrain::detail
