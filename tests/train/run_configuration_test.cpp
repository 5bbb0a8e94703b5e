#include <libtrain/train/detail/run_configuration.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_manifest.hpp>

namespace libtrain::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The configuration as a run finds it in the checkpoint of another run.
std::string through_a_manifest(const RunConfiguration& configuration) {
  const CheckpointManifest manifest{.run_ids = {"a run"}, .configuration = to_json(configuration)};
  return parse_checkpoint_manifest(to_text(manifest), "manifest.json").configuration;
}

TEST(RunConfiguration, NamesEveryDifference) {
  const RunConfiguration former{{"--batch-size", "64"}, {"--data", "a"}, {"--old", "1"}, {"--seed", "0"}};
  const RunConfiguration now{{"--batch-size", "32"}, {"--data", "a"}, {"--new", "x y"}, {"--seed", "0"}};
  EXPECT_THAT(
      differences(now, through_a_manifest(former)),
      ElementsAre("--batch-size is 32 and was 64", "--new is x y and was not there", "--old is not there and was 1"));
  EXPECT_THAT(differences(former, through_a_manifest(former)), IsEmpty());
}

TEST(RunConfiguration, CannotCompareSecretsWhichAreMaskedInCheckpoints) {
  const RunConfiguration former{{"--data", "az://c/d?sig=one"}, {"--storage-key", "one"}};
  const RunConfiguration now{{"--data", "az://c/d?sig=two"}, {"--storage-key", "two"}};
  const auto stored = through_a_manifest(former);
  EXPECT_EQ(stored.find("one"), std::string::npos);
  EXPECT_THAT(differences(now, stored), IsEmpty());
}

TEST(RunConfiguration, RefusesWhatItDidNotWrite) {
  EXPECT_THROW(differences({}, R"({"lr": {"nested": 1}})"), EnvironmentError);
  EXPECT_THROW(differences({}, "{"), EnvironmentError);
}

}  // namespace
}  // namespace libtrain::detail
