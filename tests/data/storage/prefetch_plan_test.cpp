#include <libtrain/data/storage/prefetch_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Files = std::set<std::uint32_t>;

// The fewest fetches that serve all uses from `position` on, of all ways to evict; for files of size 1.
class BruteForce {
 public:
  explicit BruteForce(const PrefetchTask& task) : task_(task) {}

  std::size_t fewest_fetches(std::size_t position, const Files& local) {
    if (position == task_.uses.size()) return 0;
    const auto key = std::pair(position, local);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const auto file = task_.uses[position];
    std::size_t fewest = 0;
    if (local.contains(file)) {
      fewest = fewest_fetches(position + 1, local);
    } else if (local.size() < task_.capacity_bytes) {
      Files more = local;
      more.insert(file);
      fewest = 1 + fewest_fetches(position + 1, more);
    } else {
      fewest = task_.uses.size();
      for (const auto victim : local) {
        Files others = local;
        others.erase(victim);
        others.insert(file);
        fewest = std::min(fewest, 1 + fewest_fetches(position + 1, others));
      }
    }
    known_[key] = fewest;
    return fewest;
  }

 private:
  const PrefetchTask& task_;
  std::map<std::pair<std::size_t, Files>, std::size_t> known_;
};

std::size_t next_use(const PrefetchTask& task, std::uint32_t file, std::size_t from) {
  const auto begin = task.uses.begin() + static_cast<std::ptrdiff_t>(from);
  return static_cast<std::size_t>(std::find(begin, task.uses.end(), file) - task.uses.begin());
}

std::uint64_t bytes_of(const PrefetchTask& task, const Files& files) {
  std::uint64_t bytes = 0;
  for (const auto file : files) bytes += task.file_bytes[file];
  return bytes;
}

// Follows the plan as early as it allows, evicting what is used last, and checks that nothing goes wrong.
void follow(const PrefetchTask& task, const PrefetchPlan& plan) {
  Files local(task.local.begin(), task.local.end());
  ASSERT_TRUE(std::is_sorted(plan.fetches().begin(), plan.fetches().end(),
                             [](const auto& a, const auto& b) { return a.start_at < b.start_at; }));
  auto fetch = plan.fetches().begin();
  for (std::size_t position = 0; position < task.uses.size(); ++position) {
    for (; fetch != plan.fetches().end() && fetch->start_at <= position; ++fetch) {
      ASSERT_FALSE(local.contains(fetch->file));
      ASSERT_GE(fetch->needed_at, position);
      ASSERT_EQ(next_use(task, fetch->file, position), fetch->needed_at);
      while (bytes_of(task, local) + task.file_bytes[fetch->file] > task.capacity_bytes) {
        const auto last = std::max_element(local.begin(), local.end(), [&](auto a, auto b) {
          return next_use(task, a, position) < next_use(task, b, position);
        });
        ASSERT_GT(next_use(task, *last, position), fetch->needed_at) << "what is needed before would go";
        local.erase(last);
      }
      local.insert(fetch->file);
    }
    const auto file = task.uses[position];
    ASSERT_TRUE(local.contains(file) || task.file_bytes[file] > task.capacity_bytes) << "position " << position;
  }
  EXPECT_TRUE(fetch == plan.fetches().end());
}

PrefetchTask random_task(std::mt19937& random, std::uint32_t files, std::size_t uses, bool same_size) {
  PrefetchTask task;
  for (std::size_t i = 0; i < uses; ++i) task.uses.push_back(static_cast<std::uint32_t>(random() % files));
  for (std::uint32_t file = 0; file < files; ++file) task.file_bytes.push_back(same_size ? 1 : 1 + random() % 5);
  task.capacity_bytes = same_size ? 1 + random() % 4 : 5 + random() % 10;
  std::uint64_t used = 0;
  for (std::uint32_t file = 0; file < files; ++file) {
    used += task.file_bytes[file];
    if (random() % 3 == 0 && used <= task.capacity_bytes) task.local.push_back(file);
  }
  return task;
}

TEST(PrefetchPlan, FetchesAsFewFilesAsPossible) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto task = random_task(random, 2 + static_cast<std::uint32_t>(random() % 4), 12, true);
    const PrefetchPlan plan(task);
    const auto fewest = BruteForce(task).fewest_fetches(0, Files(task.local.begin(), task.local.end()));
    ASSERT_EQ(plan.fetches().size(), fewest) << "round " << round;
  }
}

TEST(PrefetchPlan, FollowedAsEarlyAsItAllowsHasEveryFileInTime) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const auto task = random_task(random, 2 + static_cast<std::uint32_t>(random() % 8), 40, round % 2 == 0);
    follow(task, PrefetchPlan(task));
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(PrefetchPlan, BeginsAsSoonAsThereIsRoom) {
  const PrefetchPlan plan(
      {.uses = {0, 1, 0, 2, 2, 3, 1}, .file_bytes = {10, 10, 10, 10}, .capacity_bytes = 20, .local = {}});
  EXPECT_THAT(plan.fetches(), ElementsAre(PlannedFetch{.file = 0, .needed_at = 0, .start_at = 0},
                                          PlannedFetch{.file = 1, .needed_at = 1, .start_at = 0},
                                          PlannedFetch{.file = 2, .needed_at = 3, .start_at = 3},    // instead of 0
                                          PlannedFetch{.file = 3, .needed_at = 5, .start_at = 5}));  // instead of 2
}

TEST(PrefetchPlan, KnowsTheUsesOfFiles) {
  const PrefetchPlan plan({.uses = {2, 0, 2, 2}, .file_bytes = {1, 1, 1}, .capacity_bytes = 3, .local = {}});
  EXPECT_EQ(plan.first_use(0), 1u);
  EXPECT_EQ(plan.first_use(1), kNeverUsed);
  EXPECT_EQ(plan.first_use(2), 0u);
  EXPECT_EQ(plan.next_use(0), 2u);
  EXPECT_EQ(plan.next_use(1), kNeverUsed);
  EXPECT_EQ(plan.next_use(2), 3u);
  EXPECT_EQ(plan.next_use(3), kNeverUsed);
}

TEST(PrefetchPlan, LeavesOutWhatIsLocalOrTooLarge) {
  const PrefetchPlan plan(
      {.uses = {0, 1, 2, 0, 1, 2}, .file_bytes = {5, 21, 5}, .capacity_bytes = 20, .local = {2, 2}});
  EXPECT_THAT(plan.fetches(), ElementsAre(PlannedFetch{.file = 0, .needed_at = 0, .start_at = 0}));
}

TEST(PrefetchPlan, EvictsLocalFilesThatAreNotNeededAtOnce) {
  const PrefetchPlan plan({.uses = {0, 1}, .file_bytes = {10, 10, 10}, .capacity_bytes = 20, .local = {2, 0}});
  EXPECT_THAT(plan.fetches(), ElementsAre(PlannedFetch{.file = 1, .needed_at = 1, .start_at = 0}));
  // One that is named twice takes its space once, so that none has to go.
  const PrefetchPlan twice({.uses = {0, 1}, .file_bytes = {10, 10}, .capacity_bytes = 20, .local = {1, 1}});
  EXPECT_THAT(twice.fetches(), ElementsAre(PlannedFetch{.file = 0, .needed_at = 0, .start_at = 0}));
}

TEST(PrefetchPlan, OfNothingIsEmpty) {
  EXPECT_THAT(PrefetchPlan(PrefetchTask{}).fetches(), IsEmpty());
  EXPECT_THAT(PrefetchPlan({.uses = {0, 0}, .file_bytes = {1}, .capacity_bytes = 0, .local = {}}).fetches(), IsEmpty());
}

TEST(PrefetchPlan, PlansManyUsesAtOnce) {
  PrefetchTask task;
  task.capacity_bytes = 1000;
  task.file_bytes.assign(10'000, 1);
  std::mt19937 random(3);
  for (int i = 0; i < 200'000; ++i) task.uses.push_back(static_cast<std::uint32_t>(random() % 10'000));
  const PrefetchPlan plan(task);
  EXPECT_GE(plan.fetches().size(), 10'000u);   // every file at least once
  EXPECT_LT(plan.fetches().size(), 180'000u);  // what any cache of a tenth of the files would save
}

TEST(PrefetchPlan, RefusesFilesItKnowsNothingOf) {
  EXPECT_THAT(message_of<UsageError>([] { PrefetchPlan({.uses = {0, 3}, .file_bytes = {1, 1, 1}}); }),
              HasSubstr("positions name file 3"));
  EXPECT_THAT(message_of<UsageError>([] { PrefetchPlan({.file_bytes = {1}, .local = {1}}); }),
              HasSubstr("local files name file 1"));
}

}  // namespace
}  // namespace libtrain::data
