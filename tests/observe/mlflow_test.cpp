#include <libtrain/observe/mlflow.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>

#include <tests/support/fake_http_server.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using test::CapturedLog;
using test::FakeHttpServer;
using test::message_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Answer = FakeHttpServer::Answer;
using Request = FakeHttpServer::Request;
using Then = FakeHttpServer::Then;

constexpr const char* kRun =
    R"({"run":{"info":{"run_id":"run-7","artifact_uri":"mlflow-artifacts:/0/run-7/artifacts"}}})";

bool is_call(const Request& request, const std::string& endpoint) {
  return request.target.starts_with("/api/2.0/mlflow/" + endpoint);
}

// As an MLflow server answers, unless the test's handler does.
Answer usual_answer(const Request& request) {
  const bool is_run = is_call(request, "runs/create") || is_call(request, "runs/get");
  return {.body = is_run ? kRun : "{}"};
}

// Calls `first` for the first `count` requests of the endpoint.
FakeHttpServer::Handler failing(std::string endpoint, int count, Answer answer) {
  return [endpoint = std::move(endpoint), count, answer](const Request& request) mutable {
    return is_call(request, endpoint) && count-- > 0 ? answer : usual_answer(request);
  };
}

Environment environment_for(const std::string& url, std::map<std::string, std::string, std::less<>> more = {}) {
  more["MLFLOW_TRACKING_URI"] = url;
  return Environment{std::move(more)};
}

MlflowRun::Options quick() {
  return {.send_interval = 1ms, .first_wait = 1ms};
}

std::vector<Json> bodies_of(const FakeHttpServer& server, const std::string& endpoint) {
  std::vector<Json> bodies;
  for (const auto& request : server.requests()) {
    if (is_call(request, endpoint)) bodies.push_back(Json::parse(request.body));
  }
  return bodies;
}

// All entries of a kind that log-batch requests carried.
std::vector<Json> entries_of(const FakeHttpServer& server, const std::string& kind) {
  std::vector<Json> entries;
  for (const auto& body : bodies_of(server, "runs/log-batch")) {
    for (const auto& entry : body.value(kind, Json::array())) entries.push_back(entry);
  }
  return entries;
}

std::vector<double> steps_of(const std::vector<Json>& metrics) {
  std::vector<double> steps;
  for (const auto& metric : metrics) steps.push_back(metric["step"].get<double>());
  return steps;
}

void log_losses(MlflowRun& run, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    const Metric metric{"loss", 0.5};
    run.log_metrics("step", step, {&metric, 1});
  }
}

TEST(MlflowRun, SendsParametersTagsMetricsAndTheStatus) {
  const FakeHttpServer server{usual_answer};
  const auto before_ms = static_cast<double>(std::time(nullptr)) * 1000.0;
  {
    MlflowRun run{environment_for(server.url()), {.run_name = "first", .send_interval = 1ms}};
    run.log_params({{"lr", "0.1"}, {"storage_key", "C4n4rY"}});
    run.log_tags({{"vm", "nd96"}});
    const std::vector<Metric> values{{"loss", 0.25}, {"accuracy", 0.5}};
    run.log_metrics("evaluation", 12, values);
    run.log_text("alert", 3, "slow");
    run.end(RunStatus::finished);
    EXPECT_EQ(run.run_id(), "run-7");
  }
  const auto created = bodies_of(server, "runs/create");
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(created[0]["experiment_id"], "0");
  EXPECT_EQ(created[0]["run_name"], "first");
  for (const auto& body : bodies_of(server, "runs/log-batch")) EXPECT_EQ(body["run_id"], "run-7");
  EXPECT_THAT(entries_of(server, "params"),
              ElementsAre(Json{{"key", "lr"}, {"value", "0.1"}}, Json{{"key", "storage_key"}, {"value", "***"}}));
  EXPECT_THAT(entries_of(server, "tags"),
              ElementsAre(Json{{"key", "vm"}, {"value", "nd96"}}, Json{{"key", "alert"}, {"value", "slow"}}));
  const auto metrics = entries_of(server, "metrics");
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0]["key"], "evaluation/loss");
  EXPECT_EQ(metrics[0]["value"], 0.25);
  EXPECT_EQ(metrics[0]["step"], 12);
  EXPECT_GE(metrics[0]["timestamp"].get<double>(), before_ms);
  EXPECT_EQ(metrics[1]["key"], "evaluation/accuracy");
  const auto updates = bodies_of(server, "runs/update");
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0]["status"], "FINISHED");
}

TEST(MlflowRun, WithoutAnEndHasFailed) {
  const FakeHttpServer server{usual_answer};
  {
    const MlflowRun run{environment_for(server.url())};
  }
  const auto updates = bodies_of(server, "runs/update");
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0]["status"], "FAILED");
}

TEST(MlflowRun, SendsAtMost1000MetricsAnd100ParametersARequest) {
  const FakeHttpServer server{usual_answer};
  {
    MlflowRun run{environment_for(server.url()), {.send_interval = 1h}};
    NamedValues params;
    for (int i = 0; i < 250; ++i) params.emplace_back("p" + std::to_string(i), "x");
    run.log_params(params);
    log_losses(run, 0, 2500);
    run.end(RunStatus::finished);
  }
  for (const auto& body : bodies_of(server, "runs/log-batch")) {
    EXPECT_LE(body.value("metrics", Json::array()).size(), 1000U);
    EXPECT_LE(body.value("params", Json::array()).size(), 100U);
  }
  const auto steps = steps_of(entries_of(server, "metrics"));
  ASSERT_EQ(steps.size(), 2500U);
  for (int step = 0; step < 2500; ++step) EXPECT_EQ(steps[static_cast<std::size_t>(step)], step);
  EXPECT_EQ(entries_of(server, "params").size(), 250U);
}

TEST(MlflowRun, FitsNamesAndValuesToTheLimits) {
  const FakeHttpServer server{usual_answer};
  {
    MlflowRun run{environment_for(server.url())};
    run.log_params({{"a:b#" + std::string(300, 'x'), std::string(7000, 'y')}});
    const std::vector<Metric> values{{"nan", std::nan("")},
                                     {"up", std::numeric_limits<double>::infinity()},
                                     {"down", -std::numeric_limits<double>::infinity()}};
    run.log_metrics("step", 0, values);
    run.end(RunStatus::finished);
  }
  const auto params = entries_of(server, "params");
  ASSERT_EQ(params.size(), 1U);
  EXPECT_EQ(params[0]["key"], "a_b_" + std::string(246, 'x'));
  EXPECT_EQ(params[0]["value"], std::string(6000, 'y'));
  const auto metrics = entries_of(server, "metrics");
  ASSERT_EQ(metrics.size(), 3U);
  EXPECT_EQ(metrics[0]["value"], "NaN");
  EXPECT_EQ(metrics[1]["value"], "Infinity");
  EXPECT_EQ(metrics[2]["value"], "-Infinity");
}

TEST(MlflowRun, ContinuesTheRunOfTheEnvironment) {
  const FakeHttpServer server{usual_answer};
  {
    MlflowRun run{environment_for(server.url(), {{"MLFLOW_RUN_ID", "run-7"}})};
    run.end(RunStatus::stopped);
  }
  EXPECT_THAT(bodies_of(server, "runs/create"), IsEmpty());
  EXPECT_EQ(server.requests().at(0).target, "/api/2.0/mlflow/runs/get?run_id=run-7");
  const auto updates = bodies_of(server, "runs/update");
  ASSERT_EQ(updates.size(), 2U);
  EXPECT_EQ(updates[0]["status"], "RUNNING");
  EXPECT_EQ(updates[1]["status"], "KILLED");
}

TEST(MlflowRun, CreatesAnExperimentThatDoesNotExist) {
  const FakeHttpServer server{[](const Request& request) -> Answer {
    if (is_call(request, "experiments/get-by-name")) {
      return {.status = 404, .body = R"({"error_code":"RESOURCE_DOES_NOT_EXIST","message":"none"})"};
    }
    if (is_call(request, "experiments/create")) return {.body = R"({"experiment_id":"12"})"};
    return usual_answer(request);
  }};
  {
    MlflowRun run{environment_for(server.url(), {{"MLFLOW_EXPERIMENT_NAME", "birds & bees"}})};
    run.end(RunStatus::finished);
  }
  EXPECT_EQ(server.requests().at(0).target,
            "/api/2.0/mlflow/experiments/get-by-name?experiment_name=birds%20%26%20bees");
  EXPECT_EQ(bodies_of(server, "experiments/create").at(0)["name"], "birds & bees");
  EXPECT_EQ(bodies_of(server, "runs/create").at(0)["experiment_id"], "12");
}

TEST(MlflowRun, UploadsArtifactsThenRegistersTheModel) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "model/part");
  write_file(folder / "model/weights", "w");
  write_file(folder / "model/part/a b", "");
  const FakeHttpServer server{[](const Request& request) -> Answer {
    if (is_call(request, "registered-models/create")) {
      return {.status = 400, .body = R"({"error_code":"RESOURCE_ALREADY_EXISTS"})"};
    }
    return usual_answer(request);
  }};
  const CapturedLog log;
  {
    MlflowRun run{environment_for(server.url())};
    run.log_artifact(folder.path() / "model", "model");
    run.register_model("birds", "model");
    run.end(RunStatus::finished);
  }
  std::map<std::string, std::string> uploads;
  for (const auto& request : server.requests()) {
    if (request.method == "PUT") uploads[request.target] = request.body;
  }
  const std::string base = "/api/2.0/mlflow-artifacts/artifacts/0/run-7/artifacts/model/";
  EXPECT_EQ(uploads, (std::map<std::string, std::string>{{base + "weights", "w"}, {base + "part/a%20b", ""}}));
  const auto versions = bodies_of(server, "model-versions/create");
  ASSERT_EQ(versions.size(), 1U);
  EXPECT_EQ(versions[0]["source"], "mlflow-artifacts:/0/run-7/artifacts/model");
  EXPECT_EQ(versions[0]["run_id"], "run-7");
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST(MlflowRun, SaysWhereArtifactsAreThatTheServerDoesNotHandOut) {
  const TemporaryFolder folder;
  write_file(folder / "weights", "w");
  const FakeHttpServer server{[](const Request& request) -> Answer {
    if (!is_call(request, "runs/create")) return {};
    return {.body = R"({"run":{"info":{"run_id":"x","artifact_uri":"s3://bucket/x"}}})"};
  }};
  const CapturedLog log;
  {
    MlflowRun run{environment_for(server.url())};
    run.log_artifact(folder.path() / "weights", "weights");
    run.log_artifact(folder.path() / "absent", "absent");
    run.end(RunStatus::finished);
  }
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr("s3://bucket/x"), HasSubstr("--serve-artifacts")));
  EXPECT_THAT(log.lines()[1], HasSubstr("2 artifacts"));
}

// The server fails at first; nothing is lost, and one warning tells.
void expect_recovery(const std::string& endpoint, const Answer& answer, const std::string& words) {
  const FakeHttpServer server{failing(endpoint, 3, answer)};
  const CapturedLog log;
  {
    auto options = quick();
    options.stall_timeout = 1s;
    MlflowRun run{environment_for(server.url()), options};
    log_losses(run, 0, 10);
    run.end(RunStatus::finished);
  }
  auto steps = steps_of(entries_of(server, "metrics"));
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  EXPECT_EQ(steps.size(), 10U) << endpoint << words;
  ASSERT_EQ(log.lines().size(), 1U) << endpoint << words;
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr(server.url()), HasSubstr(words), HasSubstr("The training continues")));
}

TEST(MlflowRun, RecoversFromFailuresOfTheServer) {
  for (const std::string endpoint : {"runs/create", "runs/log-batch", "runs/update"}) {
    expect_recovery(endpoint, {.status = 500, .body = "broken"}, "HTTP 500");
    expect_recovery(endpoint, {.status = 429, .body = R"({"error_code":"BUSY","message":"later"})"},
                    "HTTP 429 BUSY: later");
    expect_recovery(endpoint, {.then = Then::cut}, "");
  }
  expect_recovery("runs/log-batch", {.body = "<html>"}, "not JSON");
  expect_recovery("runs/create", {.body = "{}"}, "has no run");
}

TEST(MlflowRun, WaitsAsLongAsTheServerRequests) {
  const FakeHttpServer server{failing("runs/create", 1, {.status = 429, .headers = "Retry-After: 1\r\n"})};
  const CapturedLog log;
  const auto begin = std::chrono::steady_clock::now();
  {
    MlflowRun run{environment_for(server.url()), quick()};
    ASSERT_TRUE(server.wait_for(2));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 1s);
    run.end(RunStatus::finished);
  }
}

// The median of the times that calls take, in seconds.
double median_call_s(MlflowRun& run, int calls) {
  std::vector<double> times;
  for (int step = 0; step < calls; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    log_losses(run, step, step + 1);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

TEST(MlflowRun, CostsMicrosecondsWhileTheServerHangs) {
  const FakeHttpServer server{[](const Request&) -> Answer { return {.then = Then::hang}; }};
  const CapturedLog log;
  const auto begin = std::chrono::steady_clock::now();
  {
    MlflowRun run{environment_for(server.url()), {.send_interval = 1ms, .end_timeout = 300ms}};
    ASSERT_TRUE(server.wait_for(1));
    EXPECT_LT(median_call_s(run, 2000), 100e-6);
    run.log_params({{"lr", "0.1"}});
    run.end(RunStatus::finished);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr("2000 metrics, 1 parameter, the run's status"), HasSubstr(server.url())));
}

TEST(MlflowRun, CostsMicrosecondsWhileTheServerIsDown) {
  std::string url;
  {
    url = FakeHttpServer{usual_answer}.url();
  }
  const CapturedLog log;
  {
    MlflowRun run{environment_for(url), {.send_interval = 1ms, .end_timeout = 300ms, .first_wait = 1ms}};
    EXPECT_LT(median_call_s(run, 2000), 100e-6);
    run.end(RunStatus::finished);
  }
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr(url), HasSubstr("cannot be used")));
  EXPECT_THAT(log.lines()[1], HasSubstr("2000 metrics"));
}

TEST(MlflowRun, KeepsABoundedNumberOfMetrics) {
  const FakeHttpServer server{[](const Request&) -> Answer { return {.then = Then::hang}; }};
  const CapturedLog log;
  {
    MlflowRun run{environment_for(server.url()), {.send_interval = 1ms, .pending_values = 100, .end_timeout = 1ms}};
    log_losses(run, 0, 1000);
    run.log_tags({{"late", "x"}});
    run.end(RunStatus::finished);
  }
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_THAT(log.lines()[0], HasSubstr("1000 metrics, 1 tag, the run's status"));
}

TEST(MlflowRun, LosesOnlyTheParameterThatIsRefused) {
  const FakeHttpServer server{[](const Request& request) -> Answer {
    if (request.body.find("lr") == std::string::npos) return usual_answer(request);
    return {.status = 400, .body = R"({"error_code":"INVALID_PARAMETER_VALUE","message":"lr is 0.2 already"})"};
  }};
  const CapturedLog log;
  {
    MlflowRun run{environment_for(server.url()), quick()};
    run.log_params({{"batch", "8"}, {"lr", "0.1"}, {"model", "x"}});
    run.end(RunStatus::finished);
  }
  std::vector<std::string> alone;
  for (const auto& body : bodies_of(server, "runs/log-batch")) {
    if (body["params"].size() == 1) alone.push_back(body["params"][0]["key"]);
  }
  EXPECT_THAT(alone, ElementsAre("batch", "lr", "model"));
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0], HasSubstr("lr is 0.2 already"));
  EXPECT_THAT(log.lines()[1], HasSubstr(": 1 parameter."));
}

TEST(MlflowRun, ThatIsRefusedCostsOneReportAndNoTime) {
  const FakeHttpServer server{[](const Request&) -> Answer { return {.status = 401, .body = "no"}; }};
  const CapturedLog log;
  {
    MlflowRun run{environment_for(server.url(), {{"MLFLOW_TRACKING_TOKEN", "C4n4rY"}}), quick()};
    ASSERT_TRUE(server.wait_for(1));
    log_losses(run, 0, 10);
    run.end(RunStatus::finished);
  }
  EXPECT_EQ(server.requests().size(), 1U);
  EXPECT_EQ(server.requests()[0].headers.at("authorization"), "Bearer C4n4rY");
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr("HTTP 401"), HasSubstr("MLFLOW_TRACKING_TOKEN"),
                                    HasSubstr("continues without MLflow"), Not(HasSubstr("C4n4rY"))));
  EXPECT_THAT(log.lines()[1], HasSubstr("10 metrics"));
}

TEST(MlflowRun, FollowsNoRedirect) {
  const FakeHttpServer other{usual_answer};
  const FakeHttpServer server{
      [&](const Request&) -> Answer { return {.status = 302, .headers = "Location: " + other.url() + "/\r\n"}; }};
  const CapturedLog log;
  {
    const MlflowRun run{environment_for(server.url()), quick()};
  }
  EXPECT_THAT(other.requests(), IsEmpty());
  EXPECT_THAT(log.lines().at(0), AllOf(HasSubstr("HTTP 302"), HasSubstr("Redirects are not followed")));
}

class FetchModel : public ::testing::Test {
 protected:
  // A registry with version 3 of "birds", the alias "best" for version 2, and two files.
  static Answer registry(const Request& request) {
    if (is_call(request, "model-versions/search")) return {.body = R"({"model_versions":[{"version":"3"}]})"};
    if (is_call(request, "registered-models/alias")) return {.body = R"({"model_version":{"version":"2"}})"};
    if (is_call(request, "model-versions/get-download-uri")) {
      return {.body = R"({"artifact_uri":"mlflow-artifacts:/0/r/artifacts/model"})"};
    }
    const std::string artifacts = "/api/2.0/mlflow-artifacts/artifacts";
    if (request.target == artifacts + "?path=0%2Fr%2Fartifacts%2Fmodel") {
      return {.body = R"({"files":[{"path":"weights","is_dir":false},{"path":"more","is_dir":true}]})"};
    }
    if (request.target == artifacts + "?path=0%2Fr%2Fartifacts%2Fmodel%2Fmore") {
      return {.body = R"({"files":[{"path":"a b","is_dir":false}]})"};
    }
    if (request.target == artifacts + "/0/r/artifacts/model/weights") return {.body = std::string(100000, 'w')};
    if (request.target == artifacts + "/0/r/artifacts/model/more/a%20b") return {.body = ""};
    return {.status = 404, .body = R"({"error_code":"RESOURCE_DOES_NOT_EXIST","message":"no such thing"})"};
  }

  const TemporaryFolder folder_;
};

TEST_F(FetchModel, DownloadsAllFilesOfAVersion) {
  const FakeHttpServer server{registry};
  EXPECT_EQ(fetch_model(environment_for(server.url()), "birds", folder_.path() / "new"), "3");
  EXPECT_EQ(read_file(folder_ / "new/weights"), std::string(100000, 'w'));
  EXPECT_EQ(read_file(folder_ / "new/more/a b"), "");
  EXPECT_EQ(fetch_model(environment_for(server.url()), "birds", folder_.path() / "new", "best"), "2");
  EXPECT_EQ(fetch_model(environment_for(server.url()), "birds", folder_.path() / "new", "1"), "1");
}

TEST_F(FetchModel, TriesAgain) {
  int requests = 0;
  const FakeHttpServer server{[&](const Request& request) -> Answer {
    const bool is_download = request.target.ends_with("/weights");
    return is_download && requests++ == 0 ? Answer{.body = std::string(100, 'x'), .then = Then::cut}
                                          : registry(request);
  }};
  fetch_model(environment_for(server.url()), "birds", folder_.path());
  EXPECT_EQ(read_file(folder_ / "weights"), std::string(100000, 'w'));
}

TEST_F(FetchModel, SaysWhatTheServerRefuses) {
  const FakeHttpServer server{[](const Request&) -> Answer {
    return {.status = 404, .body = R"({"error_code":"RESOURCE_DOES_NOT_EXIST","message":"no such model"})"};
  }};
  const auto environment = environment_for(server.url(), {{"MLFLOW_TRACKING_TOKEN", "C4n4rY"}});
  EXPECT_THAT(message_of<EnvironmentError>([&] { fetch_model(environment, "birds", folder_.path()); }),
              AllOf(HasSubstr("'birds' (latest)"), HasSubstr(server.url()), HasSubstr("no such model"),
                    Not(HasSubstr("C4n4rY"))));
}

TEST_F(FetchModel, WritesNothingOutsideOfTheFolder) {
  for (const std::string name : {"..", "../x", "/etc/x", ".", ""}) {
    const FakeHttpServer server{[&](const Request& request) -> Answer {
      if (request.target.find("artifacts?path=") == std::string::npos) return registry(request);
      return {.body = Json{{"files", {{{"path", name}, {"is_dir", false}}}}}.dump()};
    }};
    EXPECT_THAT(message_of<EnvironmentError>(
                    [&] { fetch_model(environment_for(server.url()), "birds", folder_.path() / "in"); }),
                HasSubstr("no name of a file"));
    EXPECT_EQ(folder_.count(), 0) << name;
  }
}

TEST_F(FetchModel, GivesUpAfterItsTimeout) {
  std::string url;
  {
    url = FakeHttpServer{usual_answer}.url();
  }
  EXPECT_THAT(
      message_of<EnvironmentError>([&] { fetch_model(environment_for(url), "birds", folder_.path(), "1", 1ms); }),
      HasSubstr(url));
}

TEST_F(FetchModel, RefusesNamesThatNoModelHas) {
  EXPECT_THAT(message_of<UsageError>([&] { fetch_model(environment_for("http://x"), "a'b", folder_.path()); }),
              HasSubstr("a'b"));
}

}  // namespace
}  // namespace libtrain
