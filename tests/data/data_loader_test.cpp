#include <libtrain/data/data_loader.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>
#include <libtrain/data/storage/storage.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;

// Sample i is a 2x3 image full of i with label 10 i.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  Sample get(std::uint64_t index, SampleRandom& /*random*/) const override {
    if (index == failing) throw std::runtime_error("sample " + std::to_string(index));
    threads_at_work.store(at::get_num_threads());
    return {at::full({1, 2, 3}, static_cast<double>(index), at::kFloat), static_cast<std::int64_t>(10 * index)};
  }
  std::uint64_t failing = ~std::uint64_t{0};
  mutable std::atomic<int> threads_at_work = 0;

 private:
  std::uint64_t size_;
};

static_assert(std::is_constructible_v<DataLoader, Numbers&, DataLoaderOptions>);
static_assert(std::is_constructible_v<DataLoader, const Numbers&, DataLoaderOptions, Shard>);
static_assert(!std::is_constructible_v<DataLoader, Numbers, DataLoaderOptions>);
static_assert(!std::is_constructible_v<DataLoader, const Numbers, DataLoaderOptions, Shard>);

using Labels = std::vector<std::vector<std::int64_t>>;

std::vector<std::int64_t> labels_of(const Batch& batch) {
  const auto* data = batch.labels.const_data_ptr<std::int64_t>();
  return {data, data + batch.size()};
}

Labels all_labels(DataLoader& loader, std::uint64_t epoch, std::uint64_t first_step = 0) {
  Labels result;
  for (auto& batch : loader.epoch(epoch, first_step)) result.push_back(labels_of(batch));
  return result;
}

TEST(DataLoader, StacksSamples) {
  const Numbers numbers(5);
  DataLoader loader{numbers, {.batch_size = 3, .workers = 1, .order = Order::sequential}};
  std::vector<float> firsts;
  for (auto& batch : loader.epoch(0)) {
    ASSERT_EQ(batch.images.sizes().slice(1), (at::IntArrayRef{1, 2, 3}));
    ASSERT_EQ(batch.images.size(0), batch.size());
    ASSERT_EQ(batch.images.scalar_type(), at::kFloat);
    ASSERT_EQ(batch.labels.scalar_type(), at::kLong);
    const auto* pixels = batch.images.const_data_ptr<float>();
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      for (int j = 1; j < 6; ++j) EXPECT_EQ(pixels[6 * i + j], pixels[6 * i]);
      firsts.push_back(pixels[6 * i]);
    }
  }
  EXPECT_EQ(firsts, (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(all_labels(loader, 1), (Labels{{0, 10, 20}, {30, 40}}));
}

TEST(DataLoader, BatchesFollowTheSamplerWhateverTheWorkers) {
  const Numbers numbers(1000);
  const Sampler sampler({.dataset_size = 1000, .batch_size = 7, .seed = 3}, {1, 4});
  const EpochOrder order = sampler.order(5);
  Labels expected;
  for (std::uint64_t step = 0; step < sampler.steps(); ++step) {
    auto& labels = expected.emplace_back();
    for (const auto index : sampler.batch(order, step)) labels.push_back(static_cast<std::int64_t>(10 * index));
  }
  for (const int workers : {0, 1, 2, 8}) {
    DataLoader loader{numbers, {.batch_size = 7, .workers = workers, .seed = 3}, {1, 4}};
    EXPECT_EQ(all_labels(loader, 5), expected) << workers << " workers";
    EXPECT_EQ(all_labels(loader, 5, 30), Labels(expected.begin() + 30, expected.end())) << workers << " workers";
  }
}

TEST(DataLoader, RepetitionsHaveRandomNumbersOfTheirOwn) {
  const Numbers numbers(512);
  const auto draw = [](Sample& sample, SampleRandom& random) { sample.label = random.integer(0, 1 << 30); };
  std::map<float, std::set<std::int64_t>> drawn;  // by the sample's pixel
  for (const int workers : {0, 2}) {
    DataLoader loader{numbers, {.batch_size = 16, .workers = workers, .seed = 3, .transform = draw, .repetitions = 4}};
    std::int64_t samples = 0;
    for (auto& batch : loader.epoch(0)) {
      samples += batch.size();
      for (std::int64_t i = 0; i < batch.size(); ++i)
        drawn[batch.images[i][0][0][0].item<float>()].insert(batch.labels[i].item<std::int64_t>());
    }
    EXPECT_EQ(samples, 512);
  }
  EXPECT_EQ(drawn.size(), 128u);
  for (const auto& [sample, labels] : drawn) EXPECT_EQ(labels.size(), 4u) << sample;
}

TEST(DataLoader, AnErrorArrivesAtItsPosition) {
  Numbers numbers(100);
  numbers.failing = 37;
  for (const int workers : {0, 1, 4}) {
    DataLoader loader{numbers, {.batch_size = 5, .workers = workers, .order = Order::sequential}};
    int batches = 0;
    std::string error;
    try {
      for (auto& batch : loader.epoch(0)) batches += static_cast<int>(batch.size()) / 5;
    } catch (const std::runtime_error& caught) {
      error = caught.what();
    }
    EXPECT_EQ(batches, 7);
    EXPECT_EQ(error, "sample 37");
  }
}

TEST(DataLoader, AnErrorIsNoEndOfTheEpoch) {
  Numbers numbers(100);
  numbers.failing = 37;
  for (const int workers : {0, 2}) {
    DataLoader loader{numbers, {.batch_size = 5, .workers = workers, .order = Order::sequential}};
    auto epoch = loader.epoch(0);
    for (int batch = 0; batch < 7; ++batch) EXPECT_TRUE(epoch.next());
    for (int attempt = 0; attempt < 3; ++attempt) EXPECT_THROW(epoch.next(), std::runtime_error);
    EXPECT_EQ(epoch.state().position, 35u) << workers << " workers";
  }
}

// The quickest of several tries: what a busy machine adds is not the loader's.
template <typename Body>
std::chrono::nanoseconds quickest(const Body& body) {
  auto best = std::chrono::nanoseconds::max();
  for (int attempt = 0; attempt < 10; ++attempt) best = std::min(best, std::chrono::nanoseconds(body()));
  return best;
}

TEST(DataLoader, LeavingTheLoopStopsTheWorkers) {
  const Numbers numbers(100'000'000);
  // A batch takes more than a second: stopping must not wait for its end.
  std::atomic<int> begun = 0;
  const auto dawdle = [&begun](Sample&, SampleRandom&) {
    ++begun;
    begun.notify_all();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  };
  DataLoader large{numbers, {.batch_size = 10'000, .workers = 4, .transform = dawdle}};
  EXPECT_LT(quickest([&] {
              begun = 0;
              auto epoch = std::make_unique<LoaderEpoch>(large.epoch(0));
              begun.wait(0);
              const auto left = std::chrono::steady_clock::now();
              epoch.reset();
              return std::chrono::steady_clock::now() - left;
            }),
            std::chrono::milliseconds(100));

  DataLoader small{numbers, {.batch_size = 8, .workers = 4}};
  EXPECT_LT(quickest([&] {
              auto left = std::chrono::steady_clock::now();
              for (auto& batch : small.epoch(0)) {
                EXPECT_EQ(batch.size(), 8);
                left = std::chrono::steady_clock::now();
                break;
              }
              return std::chrono::steady_clock::now() - left;
            }),
            std::chrono::milliseconds(100));
}

static_assert(std::is_nothrow_move_constructible_v<LoaderEpoch> && std::is_nothrow_move_assignable_v<LoaderEpoch>);
static_assert(!std::is_copy_constructible_v<LoaderEpoch>);

// As a loop does that counts steps.
TEST(DataLoader, EpochsFollowEachOtherInOneVariable) {
  const Numbers numbers(5);
  for (const int workers : {0, 2}) {
    DataLoader loader{numbers, {.batch_size = 2, .workers = workers, .order = Order::sequential}};
    std::uint64_t number = 0;
    LoaderEpoch epoch = loader.epoch(number);
    Labels all;
    while (all.size() < 7) {
      auto batch = epoch.next();
      if (batch) {
        all.push_back(labels_of(*batch));
      } else {
        epoch = loader.epoch(++number);
      }
    }
    EXPECT_EQ(all, (Labels{{0, 10}, {20, 30}, {40}, {0, 10}, {20, 30}, {40}, {0, 10}}));
    EXPECT_EQ(epoch.state().epoch, 2u);
    EXPECT_EQ(loader.statistics().batches, 7u);
  }
}

TEST(DataLoader, AnEpochThatIsMovedGoesOnWhereItWas) {
  const Numbers numbers(100);
  DataLoader loader{numbers, {.batch_size = 1, .workers = 2, .order = Order::sequential}};
  LoaderEpoch first = loader.epoch(3);
  for (int step = 0; step < 10; ++step) ASSERT_TRUE(first.next());
  LoaderEpoch second = std::move(first);
  EXPECT_EQ(labels_of(*second.next()), std::vector<std::int64_t>{100});
  EXPECT_EQ(second.state().position, 11u);
  EXPECT_EQ(loader.statistics().batches, 11u);
  EXPECT_THROW(first.next(), UsageError);   // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(first.state(), UsageError);  // NOLINT(bugprone-use-after-move)
}

TEST(DataLoader, TransformsDoNotDependOnWorkersOrRanks) {
  const Numbers numbers(60);
  const auto transform = [](Sample& sample, SampleRandom& random) {
    sample.label = sample.label * 100 + random.integer(0, 99);
  };
  std::vector<std::set<std::int64_t>> results;
  for (const int world_size : {1, 3}) {
    for (const int workers : {0, 3}) {
      auto& labels = results.emplace_back();
      for (int rank = 0; rank < world_size; ++rank) {
        DataLoader loader{
            numbers, {.batch_size = 4, .workers = workers, .seed = 1, .transform = transform}, {rank, world_size}};
        for (const auto& batch : all_labels(loader, 2)) labels.insert(batch.begin(), batch.end());
      }
    }
  }
  EXPECT_EQ(results[0].size(), 60u);
  for (const auto& labels : results) EXPECT_EQ(labels, results[0]);
}

TEST(DataLoader, TransformsDrawTheNumbersOfTheirSampleAndEpoch) {
  const Numbers numbers(20);
  const auto draw = [](Sample& sample, SampleRandom& random) { sample.label = random.integer(0, 999'999); };
  DataLoader loader{numbers, {.batch_size = 20, .seed = 4, .order = Order::sequential, .transform = draw}};
  for (const std::uint64_t epoch : {0, 1, 7}) {
    std::vector<std::int64_t> expected;
    for (std::uint64_t index = 0; index < 20; ++index) {
      expected.push_back(SampleRandom(4, epoch, index).integer(0, 999'999));
    }
    EXPECT_EQ(all_labels(loader, epoch), Labels{expected}) << "epoch " << epoch;
  }
}

TEST(DataLoader, TakesTheSeedOfTheShardUnlessGivenOne) {
  const Numbers numbers(40);
  const auto draw = [](Sample& sample, SampleRandom& random) { sample.label += 1000 * random.integer(0, 999); };
  const auto labels = [&](std::optional<std::uint64_t> seed, std::uint64_t seed_of_shard) {
    DataLoader loader{numbers, {.batch_size = 40, .seed = seed, .transform = draw}, {.seed = seed_of_shard}};
    return all_labels(loader, 0);
  };
  EXPECT_EQ(labels(std::nullopt, 5), labels(5, 0));
  EXPECT_EQ(labels(5, 6), labels(5, 0));
  EXPECT_NE(labels(6, 0), labels(5, 0));
}

TEST(DataLoader, AnEmptyBatchKeepsItsTrailingShape) {
  const Numbers numbers(10);
  DataLoader loader{numbers, {.batch_size = 2, .workers = 1, .remainder = Remainder::exact}, {3, 4}};
  std::vector<std::vector<std::int64_t>> shapes;
  for (auto& batch : loader.epoch(0)) shapes.push_back(batch.images.sizes().vec());
  EXPECT_EQ(shapes, (std::vector<std::vector<std::int64_t>>{{2, 1, 2, 3}, {0, 1, 2, 3}}));
}

TEST(DataLoader, CountsTheTimeThatTheConsumerWaits) {
  const Numbers numbers(1000);
  const auto spin = [](Sample&, SampleRandom&) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(500);
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  DataLoader loader{numbers, {.batch_size = 20, .workers = 0, .transform = spin}};
  EXPECT_EQ(loader.seconds_waiting(), 0.0);
  int batches = 0;
  for (auto& batch : loader.epoch(0)) {
    batches += batch.size() > 0 ? 1 : 0;
    if (batches == 2) break;
  }
  EXPECT_GE(loader.seconds_waiting(), 0.020);  // 40 samples of 0.5 ms
}

// The number of threads of torch's operators, which is one if OMP_NUM_THREADS is 1, as ctest sets it.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads) : former_(at::get_num_threads()) { at::set_num_threads(threads); }
  IntraOpThreads(const IntraOpThreads&) = delete;  // sets the number back
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;
  ~IntraOpThreads() { at::set_num_threads(former_); }

 private:
  int former_;
};

TEST(DataLoader, WorkersRunTorchOnOneThreadAndLeaveOthersAlone) {
  constexpr int here = 3;
  const IntraOpThreads threads(here);
  const Numbers numbers(10);
  DataLoader loader{numbers, {.batch_size = 2, .workers = 2}};
  all_labels(loader, 0);
  EXPECT_EQ(numbers.threads_at_work.load(), 1);
  EXPECT_EQ(at::get_num_threads(), here);
  int elsewhere = 0;
  std::thread([&] { elsewhere = at::get_num_threads(); }).join();
  EXPECT_EQ(elsewhere, here);
}

// Every sample takes until its epoch is left. The read-ahead begins once one is being read, and says when it ends how
// many are being read then.
class Endless : public Numbers {
 public:
  using Numbers::Numbers;

  Sample get(std::uint64_t index, SampleRandom& random) const override {
    std::unique_lock lock(mutex_);
    ++reading_;
    changed_.notify_all();
    changed_.wait_for(lock, detail::StopScope::of_this_thread(), kLong, [] { return false; });
    --reading_;
    return Numbers::get(index, random);
  }

  std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& order) const override {
    std::unique_lock lock(mutex_);
    const bool is_read = changed_.wait_for(lock, kLong, [this] { return reading_ > 0; });
    samples_ahead = is_read ? order().size() : 0;
    if (is_refused) throw UsageError("no such read-ahead");
    return std::make_unique<Ahead>(*this);
  }

  bool is_refused = false;
  mutable std::uint64_t samples_ahead = 0;
  mutable int reading_at_its_end = -1;

 private:
  struct Ahead : ReadAhead {
    explicit Ahead(const Endless& endless) : owner(endless) {}
    ~Ahead() override {
      const std::lock_guard lock(owner.mutex_);
      owner.reading_at_its_end = owner.reading_;
    }
    void advance(std::uint64_t) override {}
    const Endless& owner;
  };

  static constexpr std::chrono::seconds kLong{20};
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  mutable int reading_ = 0;
};

TEST(DataLoader, ReadsWhileTheReadAheadBeginsAndUntilItEnds) {
  const Endless endless(10);
  DataLoader loader{endless, {.batch_size = 5, .workers = 2}};
  loader.epoch(0);
  EXPECT_EQ(endless.samples_ahead, 10u);
  EXPECT_EQ(endless.reading_at_its_end, 0);
}

TEST(DataLoader, HasNoEpochWithoutItsReadAhead) {
  Endless endless(10);
  endless.is_refused = true;
  DataLoader loader{endless, {.batch_size = 5, .workers = 2}};
  EXPECT_THROW(loader.epoch(0), UsageError);
  EXPECT_EQ(loader.statistics().batches, 0u);
}

TEST(DataLoader, TakesAStorageThatFailsForNoBadSample) {
  const Numbers numbers(10);
  const auto fail = [](Sample&, SampleRandom&) { throw StorageUnavailable("The store is away."); };
  DataLoader loader{numbers, {.batch_size = 5, .workers = 1, .transform = fail, .bad_samples = {.maximum_count = 10}}};
  EXPECT_THROW(all_labels(loader, 0), StorageUnavailable);
  EXPECT_EQ(loader.statistics().bad_samples, 0u);
}

TEST(DataLoader, RefusesImagesThatDoNotStack) {
  const Numbers numbers(4);
  const auto message = [&](const Transform& transform) -> std::string {
    DataLoader loader{numbers, {.batch_size = 4, .workers = 1, .order = Order::sequential, .transform = transform}};
    try {
      all_labels(loader, 0);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no UsageError";
  };
  EXPECT_THAT(message([](Sample& sample, SampleRandom&) {
                if (sample.label == 20) sample.image = sample.image.slice(2, 0, 2);
              }),
              ::testing::AllOf(::testing::HasSubstr("sample 2"), ::testing::HasSubstr("[1, 2, 2]"),
                               ::testing::HasSubstr("[1, 2, 3]")));
  EXPECT_THAT(message([](Sample& sample, SampleRandom&) { sample.image = sample.image.to(at::kDouble); }),
              ::testing::HasSubstr("float32, float16, bfloat16 or uint8 and [C, H, W]"));
  EXPECT_THAT(message([](Sample& sample, SampleRandom&) { sample.image = at::Tensor(); }),
              ::testing::HasSubstr("undefined"));
}

// Labels are 0, 10, ..., 90.
TEST(DataLoader, RefusesALabelThatTheModelHasNoClassFor) {
  const Numbers numbers(10);
  const auto message = [&](DataLoaderOptions options) {
    options.batch_size = 3;
    options.order = Order::sequential;
    options.bad_samples.maximum_count = 10;  // no such sample is bad
    DataLoader loader{numbers, options};
    return message_of<UsageError>([&] {
      auto epoch = loader.epoch(0);
      while (epoch.next()) {
      }
    });
  };
  EXPECT_THAT(message({.classes = 60}),
              ::testing::HasSubstr("label 60 of sample 6 is not below the model's 60 classes"));
  EXPECT_THAT(message({.mixing = BatchMixing{.classes = 60, .mixup_alpha = 1}}), ::testing::HasSubstr("of sample 6"));
  const auto subtract = [](Sample& sample, SampleRandom&) { sample.label -= 20; };
  EXPECT_THAT(message({.transform = subtract, .classes = 90}),
              ::testing::HasSubstr("label -20 of sample 0 is below 0"));
  DataLoader enough{numbers, {.batch_size = 10, .order = Order::sequential, .classes = 91}};
  EXPECT_EQ(all_labels(enough, 0).front().back(), 90);
}

TEST(DataLoader, RefusesMoreClassesThanTheModelHasBeforeAnythingIsRead) {
  struct Classified : Numbers {
    using Numbers::Numbers;
    std::int64_t class_count() const override { return 12; }
  };
  const Classified data(10);
  EXPECT_THAT(message_of<UsageError>([&] { DataLoader(data, {.classes = 10}); }),
              ::testing::AllOf(::testing::HasSubstr("12 classes"), ::testing::HasSubstr("the model has 10")));
  EXPECT_NO_THROW(DataLoader(data, {.classes = 12}));
}

TEST(DataLoader, RefusesAStepPastTheEndOfTheEpoch) {
  const Numbers numbers(10);
  DataLoader loader{numbers, {.batch_size = 2}, {1, 2}};
  EXPECT_EQ(all_labels(loader, 0, 3), Labels{});
  EXPECT_THAT(message_of<UsageError>([&] { loader.epoch(0, 4); }),
              ::testing::AllOf(::testing::HasSubstr("Step 4"), ::testing::HasSubstr("3 steps")));
}

TEST(DataLoader, RefusesImpossibleOptions) {
  const Numbers numbers(4);
  EXPECT_THROW(DataLoader(numbers, {.workers = -1}), UsageError);
  EXPECT_THROW(DataLoader(numbers, {.prefetch = 0}), UsageError);
  EXPECT_THROW(DataLoader(numbers, {.batch_size = 0}), UsageError);
  EXPECT_THROW(DataLoader(numbers, {.classes = 0}), UsageError);
  EXPECT_THROW(DataLoader(numbers, {.classes = 4, .mixing = BatchMixing{.classes = 5, .mixup_alpha = 1}}), UsageError);
  EXPECT_THROW(DataLoader(numbers, {}, {2, 2}), UsageError);
}

}  // namespace
}  // namespace libtrain::data
