#include <libtrain/observe/mlflow.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

TEST(MlflowRun, IsRefusedByABuildWithoutLibcurl) {
  const Environment environment{{{"MLFLOW_TRACKING_URI", "http://127.0.0.1:5000"}}};
  EXPECT_THAT(test::message_of<EnvironmentError>([&] { const MlflowRun run{environment}; }),
              ::testing::HasSubstr("-DLIBTRAIN_MLFLOW=ON"));
}

}  // namespace
}  // namespace libtrain
