#include <libtrain/observe/tracker.hpp>

#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Calls final : public Tracker {
 public:
  explicit Calls(std::vector<std::string>& calls) : calls_(calls) {}

  void log_params(const NamedValues& values) override { calls_.push_back("params " + values.at(0).first); }
  void log_tags(const NamedValues& values) override { calls_.push_back("tags " + values.at(0).first); }
  void log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) override {
    calls_.push_back(metric_name(event, values[0].name) + " " + std::to_string(step));
  }
  void log_text(std::string_view name, std::int64_t, std::string_view) override { calls_.push_back(std::string{name}); }
  void log_image(std::string_view name, std::int64_t, const EncodedImage&) override {
    calls_.push_back(std::string{name});
  }
  void log_histogram(std::string_view name, std::int64_t, const Histogram&) override {
    calls_.push_back(std::string{name});
  }
  void log_artifact(const std::filesystem::path&, std::string_view name) override {
    calls_.push_back(std::string{name});
  }
  void end(RunStatus) override { calls_.push_back("end"); }

 private:
  std::vector<std::string>& calls_;
};

TEST(Trackers, PassEveryCallToAll) {
  std::vector<std::string> one;
  std::vector<std::string> other;
  Trackers trackers;
  trackers.add(std::make_unique<Calls>(one));
  trackers.add(std::make_unique<Calls>(other));
  const std::vector<Metric> values{{"loss", 1.0}};
  trackers.log_params({{"lr", "0.1"}});
  trackers.log_tags({{"vm", "x"}});
  trackers.log_metrics("step", 3, values);
  trackers.log_metrics("evaluation", 4, values);
  trackers.log_text("note", 1, "x");
  trackers.log_image("picture", 1, {});
  trackers.log_histogram("weights", 1, {});
  trackers.log_artifact("x", "model");
  trackers.end(RunStatus::finished);
  EXPECT_THAT(one, ElementsAre("params lr", "tags vm", "train/loss 3", "evaluation/loss 4", "note", "picture",
                               "weights", "model", "end"));
  EXPECT_EQ(one, other);
}

TEST(RecordTracker, WritesOneRecordACall) {
  const test::TemporaryFolder folder;
  MetricsWriter writer{folder.path(), "run-1"};
  const std::vector<Metric> values{{"loss", 0.5}, {"accuracy", 0.25}};
  RecordTracker{writer}.log_metrics("evaluation", 12, values);
  const auto record = nlohmann::json::parse(test::read_file(folder / "metrics.jsonl"));
  EXPECT_EQ(record["event"], "evaluation");
  EXPECT_EQ(record["run_id"], "run-1");
  EXPECT_EQ(record["step"], 12);
  EXPECT_EQ(record["loss"], 0.5);
  EXPECT_EQ(record["accuracy"], 0.25);
}

TEST(Histogram, CountsEachValueInOneBucket) {
  const std::vector<float> values{-1.0F, -0.5F, 0.0F, 0.5F, 1.0F};
  const auto histogram = Histogram::of(values, 4);
  EXPECT_THAT(histogram.limits, ElementsAre(-0.5, 0.0, 0.5, 1.0));
  EXPECT_THAT(histogram.counts, ElementsAre(2.0, 1.0, 1.0, 1.0));
  EXPECT_EQ(histogram.count, 5.0);
  EXPECT_EQ(histogram.sum, 0.0);
  EXPECT_EQ(histogram.sum_of_squares, 2.5);
}

TEST(Histogram, OfEqualValuesHasOneBucket) {
  const std::vector<float> values{3.0F, 3.0F};
  const auto histogram = Histogram::of(values);
  EXPECT_THAT(histogram.limits, ElementsAre(3.0));
  EXPECT_THAT(histogram.counts, ElementsAre(2.0));
}

TEST(Histogram, LeavesOutWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values{kInfinity, 1.0F, std::numeric_limits<float>::quiet_NaN(), -kInfinity};
  EXPECT_EQ(Histogram::of(values).count, 1.0);
  EXPECT_THAT(Histogram::of({values.data(), 1}).limits, IsEmpty());
}

TEST(Histogram, NeedsABucket) {
  EXPECT_THAT(test::message_of<UsageError>([] { Histogram::of({}, 0); }), ::testing::HasSubstr("0 buckets"));
}

}  // namespace
}  // namespace libtrain
