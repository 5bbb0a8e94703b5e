#include <gtest/gtest.h>

#include <libtrain/sync/bucket_plan.hpp>

namespace libtrain {
namespace {

using Members = std::vector<std::vector<std::size_t>>;

Members members(const std::vector<Bucket>& buckets) {
  Members result;
  for (const auto& bucket : buckets) result.push_back(bucket.members);
  return result;
}

Members plan(const std::vector<GradientSpec>& gradients, std::size_t limit) {
  return members(plan_buckets(gradients, {.bucket_bytes = limit, .first_bucket_bytes = limit}));
}

std::vector<GradientSpec> float32(std::initializer_list<std::size_t> elements) {
  std::vector<GradientSpec> specs;
  for (const auto count : elements) specs.push_back({count, DataType::float32});
  return specs;
}

TEST(BucketPlan, LargeGradientsStandAlone) {
  const auto buckets = plan_buckets(float32({10, 100, 20, 30, 250, 40}),
                                    {.bucket_bytes = 4000, .first_bucket_bytes = 4000, .alone_bytes = 400});
  // Full in the order of their last gradients, those that share a bucket with the last one at the end.
  EXPECT_EQ(members(buckets), (Members{{1}, {4}, {0, 2, 3, 5}}));
}

TEST(BucketPlan, ClosesABucketBeforeItExceedsTheLimit) {
  EXPECT_EQ(plan(float32({100, 200, 100, 50}), 400), (Members{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(plan(float32({50, 50, 50, 50, 50}), 400), (Members{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(plan(float32({100, 1}), 404), (Members{{0, 1}}));
  EXPECT_EQ(plan(float32({100, 1}), 403), (Members{{0}, {1}}));
}

TEST(BucketPlan, KeepsDtypesApart) {
  std::vector<GradientSpec> gradients;
  for (int pair = 0; pair < 3; ++pair) {
    gradients.push_back({50, DataType::float32});
    gradients.push_back({25, DataType::float64});
  }
  const auto buckets = plan_buckets(gradients, {.bucket_bytes = 400, .first_bucket_bytes = 400});
  EXPECT_EQ(members(buckets), (Members{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(buckets[0].type, DataType::float32);
  EXPECT_EQ(buckets[1].type, DataType::float64);
}

TEST(BucketPlan, LeavesGradientsAboveTheLimitAlone) {
  EXPECT_EQ(plan(float32({10, 1000, 10, 2000, 3000}), 400), (Members{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(plan(float32({1, 1, 1}), 0), (Members{{0}, {1}, {2}}));
}

TEST(BucketPlan, OfNothingIsEmpty) {
  EXPECT_TRUE(plan_buckets({}).empty());
}

TEST(BucketPlan, GivesGradientsWithoutElementsAPlace) {
  EXPECT_EQ(plan(float32({0, 100, 0}), 400), (Members{{0, 1, 2}}));
}

TEST(BucketPlan, StartsWithASmallBucket) {
  const auto buckets =
      plan_buckets(float32({50, 50, 50, 50, 50, 50}), {.bucket_bytes = 600, .first_bucket_bytes = 200});
  EXPECT_EQ(members(buckets), (Members{{0}, {1, 2, 3}, {4, 5}}));
}

TEST(BucketPlan, OrdersBucketsByWhenTheyFill) {
  // The float64 bucket stays open until the end, although it was opened first.
  const auto buckets =
      plan_buckets({{1, DataType::float64}, {100, DataType::float32}, {100, DataType::float32}, {1, DataType::float64}},
                   {.bucket_bytes = 400, .first_bucket_bytes = 400});
  EXPECT_EQ(members(buckets), (Members{{1}, {2}, {0, 3}}));
}

TEST(BucketPlan, CountsBytesAndCoversEveryGradientOnce) {
  std::vector<GradientSpec> gradients;
  for (std::size_t index = 0; index < 500; ++index) {
    gradients.push_back({index * 7919 % 1000, index % 3 == 0 ? DataType::bfloat16 : DataType::float32});
  }
  const auto buckets = plan_buckets(gradients, {.bucket_bytes = 5000, .first_bucket_bytes = 1000});
  std::vector<int> seen(gradients.size());
  for (const auto& bucket : buckets) {
    std::size_t bytes = 0;
    for (const auto member : bucket.members) {
      ++seen[member];
      bytes += gradients[member].elements * size_of(gradients[member].type);
      EXPECT_EQ(gradients[member].type, bucket.type);
    }
    EXPECT_EQ(bytes, bucket.bytes);
    EXPECT_TRUE(bucket.bytes <= 5000 || bucket.members.size() == 1);
  }
  EXPECT_EQ(seen, std::vector<int>(gradients.size(), 1));
  EXPECT_EQ(buckets, plan_buckets(gradients, {.bucket_bytes = 5000, .first_bucket_bytes = 1000}));
}

}  // namespace
}  // namespace libtrain
