#include <libtrain/observe/detail/mlflow_server.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/observe/detail/mlflow_client.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using detail::HttpAnswer;
using detail::HttpRequest;
using detail::MlflowClient;
using detail::MlflowFailure;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string, std::less<>>;

constexpr const char* kWorkspace =
    "azureml://westeurope.api.azureml.ms/mlflow/v2.0/subscriptions/S/resourceGroups/G/providers/"
    "Microsoft.MachineLearningServices/workspaces/W";

detail::MlflowServer server_of(Variables variables) {
  return detail::mlflow_server(Environment{std::move(variables)});
}

std::string refusal_of(const Variables& variables) {
  return message_of<EnvironmentError>([&] { server_of(variables); });
}

TEST(MlflowServer, IsAnUrlWithoutQueryAndSlash) {
  const auto server = server_of({{"MLFLOW_TRACKING_URI", "http://10.0.0.4:5000/base/?x=1"}});
  EXPECT_EQ(server.url, "http://10.0.0.4:5000/base");
  EXPECT_EQ(server.authorization, "");
  EXPECT_FALSE(server.is_azure);
}

TEST(MlflowServer, TakesAPasswordOrAToken) {
  const Variables base{{"MLFLOW_TRACKING_URI", "https://x"}, {"MLFLOW_TRACKING_TOKEN", "abc"}};
  EXPECT_EQ(server_of(base).authorization, "Bearer abc");
  auto both = base;
  both["MLFLOW_TRACKING_USERNAME"] = "Aladdin";  // the example of RFC 7617
  both["MLFLOW_TRACKING_PASSWORD"] = "open sesame";
  EXPECT_EQ(server_of(both).authorization, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

TEST(MlflowServer, OfAzureIsReachedOverHttps) {
  const auto server = server_of({{"MLFLOW_TRACKING_URI", std::string{kWorkspace} + "?region=x"},
                                 {"MLFLOW_TRACKING_TOKEN", "abc"},
                                 {"MLFLOW_EXPERIMENT_ID", "E"},
                                 {"MLFLOW_RUN_ID", "R"}});
  const std::string scope =
      "/subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W";
  EXPECT_EQ(server.url, "https://westeurope.api.azureml.ms/mlflow/v2.0" + scope);
  EXPECT_EQ(server.token_url,
            "https://westeurope.api.azureml.ms/history/v1.0" + scope + "/experimentids/E/runs/R/token");
  EXPECT_TRUE(server.is_azure);
}

TEST(MlflowServer, NamesTheVariableThatIsWrong) {
  EXPECT_THAT(refusal_of({}), HasSubstr("MLFLOW_TRACKING_URI is not set"));
  for (const std::string uri : {"file:///tmp/mlruns", "./mlruns", "databricks", "sqlite:///x.db", "http://"}) {
    EXPECT_THAT(refusal_of({{"MLFLOW_TRACKING_URI", uri}}), AllOf(HasSubstr(uri), HasSubstr("mlflow server")));
  }
  EXPECT_THAT(refusal_of({{"MLFLOW_TRACKING_URI", "https://me:C4n4rY@x"}}),
              AllOf(HasSubstr("MLFLOW_TRACKING_PASSWORD"), Not(HasSubstr("C4n4rY"))));
  EXPECT_THAT(refusal_of({{"MLFLOW_TRACKING_URI", "https://x"}, {"MLFLOW_TRACKING_USERNAME", "me"}}),
              HasSubstr("Set both"));
  EXPECT_THAT(refusal_of({{"MLFLOW_TRACKING_URI", "https://x"}, {"MLFLOW_TRACKING_TOKEN", "C4n4rY\nHost: y"}}),
              AllOf(HasSubstr("line break"), Not(HasSubstr("C4n4rY"))));
  EXPECT_THAT(refusal_of({{"MLFLOW_TRACKING_URI", kWorkspace}}), HasSubstr("MLFLOW_TRACKING_TOKEN is not set"));
}

TEST(MlflowServer, HandsOutArtifactsOfOneScheme) {
  EXPECT_EQ(detail::proxied_path("mlflow-artifacts:/0/r/artifacts"), "0/r/artifacts");
  EXPECT_EQ(detail::proxied_path("mlflow-artifacts://host:5000/0/r"), "0/r");
  EXPECT_EQ(detail::proxied_path("mlflow-artifacts://host"), "");
  EXPECT_EQ(detail::proxied_path("s3://bucket/x"), "");
  EXPECT_EQ(detail::proxied_path("/tmp/x"), "");
}

TEST(PercentEncode, KeepsUnreservedCharacters) {
  EXPECT_EQ(detail::percent_encode("aZ09-._~ /%ü"), "aZ09-._~%20%2F%25%C3%BC");
  EXPECT_EQ(detail::percent_encode("a/b c", "/"), "a/b%20c");
}

// Answers with `answers` in turn, and keeps the requests.
class FakeHttp final : public detail::HttpClient {
 public:
  FakeHttp(std::vector<HttpAnswer> answers, std::vector<HttpRequest>& requests)
      : answers_(std::move(answers)), requests_(requests) {}

  HttpAnswer send(const HttpRequest& request, const std::stop_token&) override {
    requests_.push_back(request);
    return answers_.at(requests_.size() - 1);
  }

 private:
  std::vector<HttpAnswer> answers_;
  std::vector<HttpRequest>& requests_;
};

class MlflowOnAzure : public ::testing::Test {
 protected:
  MlflowClient client(std::vector<HttpAnswer> answers) {
    return {server_of({{"MLFLOW_TRACKING_URI", kWorkspace},
                       {"MLFLOW_TRACKING_TOKEN", "old"},
                       {"MLFLOW_EXPERIMENT_ID", "E"},
                       {"MLFLOW_RUN_ID", "R"}}),
            std::make_unique<FakeHttp>(std::move(answers), requests_),
            {}};
  }

  std::vector<std::string> authorizations() const {
    std::vector<std::string> found;
    for (const auto& request : requests_) found.push_back(request.headers.back());
    return found;
  }

  std::vector<HttpRequest> requests_;
};

TEST_F(MlflowOnAzure, RenewsATokenThatIsRefused) {
  auto mlflow = client({{.status = 401}, {.status = 200, .body = R"({"token":"new"})"}, {.status = 200, .body = "{}"}});
  mlflow.post("runs/log-batch", nlohmann::json::object());
  EXPECT_THAT(authorizations(),
              ElementsAre("Authorization: Bearer old", "Authorization: Bearer old", "Authorization: Bearer new"));
  EXPECT_THAT(requests_.at(1).url, HasSubstr("/history/v1.0/"));
  EXPECT_EQ(requests_.at(0).url, requests_.at(2).url);
}

TEST_F(MlflowOnAzure, ReportsARefusalThatRenewalDoesNotChange) {
  for (const HttpAnswer& token : {HttpAnswer{.status = 403}, HttpAnswer{.status = 200, .body = "[]"},
                                  HttpAnswer{.status = 200, .body = R"({"token":"a\r\nHost: x"})"}}) {
    requests_.clear();
    auto mlflow = client({{.status = 401}, token});
    try {
      mlflow.post("runs/log-batch", nlohmann::json::object());
      FAIL();
    } catch (const MlflowFailure& failure) {
      EXPECT_FALSE(failure.is_transient);
      EXPECT_THAT(failure.what(), HasSubstr("HTTP 401"));
    }
  }
}

}  // namespace
}  // namespace libtrain
