#include <libtrain/observe/mlflow.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/mlflow_client.hpp>

namespace libtrain {

namespace {

using detail::MlflowClient;
using detail::MlflowFailure;

constexpr std::chrono::milliseconds kFirstFetchWait{500};
constexpr std::chrono::milliseconds kLongestFetchWait{30'000};

// Calls `attempt` until it throws no transient failure, or the deadline has passed.
template <typename Attempt>
auto retried(const Deadline& deadline, const Attempt& attempt) {
  auto wait = kFirstFetchWait;
  while (true) {
    try {
      return attempt();
    } catch (const MlflowFailure& failure) {
      if (!failure.is_transient || deadline.expired()) throw;
      const auto longer =
          std::max<std::chrono::milliseconds>(wait, std::min(failure.retry_after, std::chrono::seconds{60}));
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(longer, deadline.remaining()));
      wait = std::min(2 * wait, kLongestFetchWait);
    }
  }
}

std::string model_version(MlflowClient& client, const std::string& name, const std::string& version) {
  if (parse_integer(version, 1, std::numeric_limits<int>::max())) return version;
  if (version != "latest") {
    return client.get("registered-models/alias", {{"name", name}, {"alias", version}})
        .at("model_version")
        .at("version");
  }
  const auto found =
      client.get("model-versions/search",
                 {{"filter", "name='" + name + "'"}, {"order_by", "version_number DESC"}, {"max_results", "1"}});
  const auto versions = found.value("model_versions", nlohmann::json::array());
  if (versions.empty()) throw MlflowFailure("the registry has no version of it.");
  return versions.front().at("version");
}

}  // namespace

std::string fetch_model(const Environment& environment, const std::string& name, const std::filesystem::path& folder,
                        const std::string& version, std::chrono::milliseconds timeout) {
  if (name.empty() || name.find_first_of("'\"`/") != std::string::npos) {
    throw UsageError(text("The model name '", name, "' is empty or has a quote or a slash. Give the registered name."));
  }
  const auto server = detail::mlflow_server(environment);
  const auto fail = [&](const std::string& reason) {
    return EnvironmentError(text("Cannot fetch the model '", name, "' (", version, ") from the MLflow server at ",
                                 server.url, ": ", reason));
  };
  MlflowClient client{server, detail::make_http_client({.certificate_file = server.certificate_file}), {}};
  const auto deadline = Deadline::after(timeout);
  try {
    const auto number = retried(deadline, [&] { return model_version(client, name, version); });
    const std::string location = retried(deadline, [&] {
      return client.get("model-versions/get-download-uri", {{"name", name}, {"version", number}}).at("artifact_uri");
    });
    const auto path = detail::proxied_path(location);
    if (path.empty()) {
      throw fail(text("its files are in '", location, "', which the server does not hand out. Copy them from there."));
    }
    const auto files = retried(deadline, [&] { return client.list(path); });
    if (files.empty()) throw fail(text("'", location, "' has no files."));
    for (const auto& file : files) {
      std::filesystem::create_directories((folder / file).parent_path());
      retried(deadline, [&] { client.download(path + "/" + file, folder / file); });
    }
    return number;
  } catch (const MlflowFailure& failure) {
    throw fail(failure.what());
  } catch (const nlohmann::json::exception&) {
    throw fail("its answer is not one of MLflow's. Check MLFLOW_TRACKING_URI.");
  } catch (const std::filesystem::filesystem_error& error) {
    throw fail(error.what());
  }
}

}  // namespace libtrain
