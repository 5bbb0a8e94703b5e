// Thousands of steps leave memory, descriptors and threads as they were, on ranks as threads and under mpirun. The
// memory that is counted is the host's.

#include <malloc.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/replica_check.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/sanitized.hpp>

namespace libtrain {
namespace {

using test::kSanitized;
using test::on_ranks;
using test::SilentLog;

constexpr int kManySteps = 10'000;
constexpr int kSteps = 3'000;
constexpr int kSynchronizers = 200;

// The smallest block that malloc gives out has 32 bytes: one lost in each of the last 2,700 of 3,000 steps is 86,400.
// What no leak accounts for is a few thousand: blocks that threads keep for themselves, tables that were not full yet.
constexpr std::int64_t kMaxAllocated = 64 << 10;

// Of what does not come from malloc, the least that can be lost is a page, 11 MB in 2,700 steps, and a segment of
// shared memory, 5 pages or 3.7 MB for the last 180 of 200 synchronizers. What malloc has in use may come to lie in
// more pages than before: some hundred KB, with an arena for each of four threads.
constexpr std::int64_t kMaxResident = 1 << 20;

constexpr std::int64_t kInputs = 4;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// What this process holds: that of one rank under mpirun, that of all ranks where they are threads.
struct Usage {
  std::int64_t resident_bytes = 0;   // anonymous and shared memory
  std::int64_t allocated_bytes = 0;  // given out by malloc
  std::ptrdiff_t descriptors = 0;
  std::ptrdiff_t threads = 0;
};

// Counted page by page, where RssAnon and RssShmem of /proc/self/status lag behind by up to some dozen pages for each
// processor. Pages that several processes map count in part, so that a peer's buckets are not counted as this rank's.
std::int64_t resident_bytes() {
  std::ifstream file{"/proc/self/smaps_rollup"};
  std::int64_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string name;
    std::int64_t number = 0;
    if (words >> name >> number && (name == "Pss_Anon:" || name == "Pss_Shmem:")) kilobytes += number;
  }
  return 1024 * kilobytes;
}

// The size in the last element of this kind: the one that sums up all arenas.
std::int64_t last_size(const std::string& report, const std::string& element) {
  static const std::string mark = "size=\"";
  const auto begin = report.find(mark, report.rfind(element));
  return begin == std::string::npos ? 0 : std::stoll(report.substr(begin + mark.size()));
}

// What malloc has taken from the system in all arenas, without what is free in them.
std::int64_t allocated_bytes() {
  char* memory = nullptr;
  std::size_t length = 0;
  auto* const stream = open_memstream(&memory, &length);
  if (stream == nullptr) throw std::bad_alloc();
  EXPECT_EQ(malloc_info(0, stream), 0);
  EXPECT_EQ(std::fclose(stream), 0);
  const std::string report(memory, length);
  std::free(memory);
  return last_size(report, "<system type=\"current\"") + last_size(report, "<total type=\"mmap\"") -
         last_size(report, "<total type=\"fast\"") - last_size(report, "<total type=\"rest\"");
}

std::ptrdiff_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator{folder}, std::filesystem::directory_iterator{});
}

// One rank looks at a time, while all others wait: reading opens files itself.
Usage usage_in_turn(Communicator& communicator) {
  Usage usage;
  for (int turn = 0; turn < communicator.world_size(); ++turn) {
    communicator.barrier();
    if (turn != communicator.rank()) continue;
    usage = {.resident_bytes = resident_bytes(),
             .allocated_bytes = allocated_bytes(),
             .descriptors = entries_of("/proc/self/fd"),
             .threads = entries_of("/proc/self/task")};
  }
  communicator.barrier();
  return usage;
}

/// Does `act` so many times, given the number of the time, and compares what the process holds after the last with what
/// it held after a tenth of them. All ranks must call it.
void expect_steady(Communicator& communicator, int times, const std::function<void(int)>& act) {
  const int count = kSanitized ? times / 10 : times;
  int time = 0;
  for (; time < count / 10; ++time) act(time);
  const auto before = usage_in_turn(communicator);
  for (; time < count; ++time) act(time);
  const auto after = usage_in_turn(communicator);

  // Fewer are no mistake: what an earlier test has left behind may end at any time.
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
  if (kSanitized) return;
  EXPECT_GT(before.allocated_bytes, 0) << "malloc_info() has told nothing";
  EXPECT_GT(before.resident_bytes, 0) << "/proc/self/smaps_rollup has told nothing";
  EXPECT_LE(after.allocated_bytes - before.allocated_bytes, kMaxAllocated) << "of " << before.allocated_bytes;
  EXPECT_LE(after.resident_bytes - before.resident_bytes, kMaxResident) << "of " << before.resident_bytes;
}

/// While it lives, this process gets no huge pages: where the system gives them unasked, memory grows by 2 MiB at once.
struct NoHugePages {
  NoHugePages() { prctl(PR_SET_THP_DISABLE, 1UL, 0UL, 0UL, 0UL); }
  ~NoHugePages() { prctl(PR_SET_THP_DISABLE, 0UL, 0UL, 0UL, 0UL); }
  NoHugePages(const NoHugePages&) = delete;  // one setting of the process
  NoHugePages& operator=(const NoHugePages&) = delete;
};

// Groups of one rank, which sends nothing, and of two. More ranks run the code of two, and share the same processors.
void on_few_ranks(const test::RankBody& body) {
  const NoHugePages no_huge_pages;
  on_ranks([&](Communicator& communicator) {
    if (communicator.world_size() <= 2) body(communicator);
  });
}

torch::nn::Sequential make_mlp() {
  return torch::nn::Sequential{torch::nn::Linear(kInputs, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3)};
}

// The distance from 1, which keeps gradients from falling into the range of denormal numbers.
at::Tensor loss_of(const at::Tensor& outputs) {
  return (outputs - 1).square().mean();
}

/// One rank's training, on data of its own.
struct Training {
  explicit Training(Communicator& communicator, const SynchronizerOptions& options = {},
                    const torch::nn::Sequential& the_model = make_mlp())
      : model(the_model),
        inputs(torch::rand({2, kInputs})),
        synchronizer(*model, communicator, options),
        optimizer(model->parameters(), torch::optim::SGDOptions(0.01)) {}

  at::Tensor loss() { return loss_of(model->forward(inputs)); }

  void update() {
    optimizer.step();
    synchronizer.zero_grad();
  }

  void step() {
    loss().backward();
    EXPECT_TRUE(synchronizer.wait());
    update();
  }

  torch::nn::Sequential model;
  at::Tensor inputs;
  GradientSynchronizer synchronizer;
  torch::optim::SGD optimizer;
};

void expect_steady_steps(const std::function<SynchronizerOptions()>& make_options, int steps) {
  on_few_ranks([&](Communicator& communicator) {
    Training training{communicator, make_options()};
    expect_steady(communicator, steps, [&](int) { training.step(); });
  });
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfTenThousandSteps) {
  expect_steady_steps([] { return SynchronizerOptions{}; }, kManySteps);
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfGradientsThatAreNotCopied) {
  expect_steady_steps([] { return SynchronizerOptions{.buckets = {.alone_bytes = 1}}; }, kSteps);
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfAFloat16Wire) {
  const HalfPrecisionOptions float16{.type = at::kHalf, .min_elements = 1};
  expect_steady_steps(
      [&] { return SynchronizerOptions{.wire_format = std::make_shared<HalfPrecisionWireFormat>(float16)}; }, kSteps);
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfPowerSgd) {
  const PowerSgdOptions rank_1{.rank = 1, .start_round = 2};
  expect_steady_steps([&] { return SynchronizerOptions{.wire_format = std::make_shared<PowerSgdWireFormat>(rank_1)}; },
                      kSteps);
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfAccumulation) {
  on_few_ranks([](Communicator& communicator) {
    constexpr int kPasses = 3;
    Training training{communicator};
    expect_steady(communicator, kSteps, [&](int) {
      for (int pass = 1; pass < kPasses; ++pass) {
        const auto guard = training.synchronizer.no_sync();
        (training.loss() / kPasses).backward();
      }
      (training.loss() / kPasses).backward();
      EXPECT_TRUE(training.synchronizer.wait());
      training.update();
    });
  });
}

// The ranks leave the second layer out in turn, and now and then all take it.
TEST(HostOnlySynchronizerEndurance, KeepsNothingOfUnusedParameters) {
  on_few_ranks([](Communicator& communicator) {
    Training training{communicator, {.unused = UnusedParameters::allowed}};
    auto& first = training.model->at<torch::nn::LinearImpl>(0);
    expect_steady(communicator, kSteps, [&](int step) {
      const bool leaves_out = step % (communicator.world_size() + 1) == communicator.rank();
      const auto loss = leaves_out ? loss_of(first.forward(training.inputs)) : training.loss();
      training.synchronizer.find_unused({loss});
      loss.backward();
      EXPECT_TRUE(training.synchronizer.wait());
      training.update();
    });
  });
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfSkippedRounds) {
  const SilentLog silent_log;  // each of them is a warning
  on_few_ranks([](Communicator& communicator) {
    Training training{communicator, {.non_finite = NonFinite::skipped}};
    const bool is_last = communicator.rank() == communicator.world_size() - 1;
    expect_steady(communicator, kSteps, [&](int step) {
      const bool skipped = step % 10 == 9;
      (training.loss() * (skipped && is_last ? kNan : 1)).backward();
      EXPECT_EQ(training.synchronizer.wait(), !skipped);
      training.update();
    });
  });
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfSyncBatchNormAndBuffers) {
  on_few_ranks([](Communicator& communicator) {
    torch::nn::Sequential model{torch::nn::Linear(kInputs, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(),
                                torch::nn::Linear(8, 3)};
    EXPECT_EQ(replace_batch_norms(*model, communicator), 1u);
    Training training{communicator, {.buffers = BufferPolicy::averaged}, model};
    expect_steady(communicator, kSteps, [&](int) { training.step(); });
  });
}

// Epochs in which rank r has r + 1 batches, of r + 1 samples each.
TEST(HostOnlySynchronizerEndurance, KeepsNothingOfUnevenDataAndOfJoining) {
  on_few_ranks([](Communicator& communicator) {
    Training training{communicator};
    const auto batches = communicator.rank() + 1;
    training.inputs = torch::rand({batches, kInputs});
    expect_steady(communicator, kSteps, [&](int) {
      for (int batch = 0; batch < batches; ++batch) {
        training.synchronizer.set_samples(batches);
        training.step();
      }
      while (training.synchronizer.join()) training.optimizer.step();
      training.synchronizer.zero_grad();
    });
  });
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfAShardedOptimizer) {
  on_few_ranks([](Communicator& communicator) {
    auto model = make_mlp();
    const auto inputs = torch::rand({2, kInputs});
    ShardedOptimizer optimizer{*model, torch::optim::AdamWOptions(1e-3), {.gather = ParameterGather::overlapped}};
    GradientSynchronizer synchronizer{*model, communicator, {.wire_format = optimizer.wire_format()}};
    expect_steady(communicator, kSteps, [&](int) {
      optimizer.wait_for_parameters();
      loss_of(model->forward(inputs)).backward();
      EXPECT_TRUE(synchronizer.wait());
      optimizer.step();
      synchronizer.zero_grad();
    });
  });
}

TEST(HostOnlySynchronizerEndurance, KeepsNothingOfReplicaChecks) {
  on_few_ranks([](Communicator& communicator) {
    Training training{communicator};
    ReplicaCheck replica_check{*training.model, communicator, 10};
    expect_steady(communicator, kSteps, [&](int) {
      training.step();
      replica_check.after_step();
    });
  });
}

// 16 KB of gradients: segments of shared memory that did not come back would be seen.
TEST(HostOnlySynchronizerEndurance, GivesBackWhatASynchronizerTakes) {
  on_few_ranks([](Communicator& communicator) {
    torch::nn::Linear model{64, 64};
    const auto inputs = torch::rand({2, 64});
    expect_steady(communicator, kSynchronizers, [&](int) {
      GradientSynchronizer synchronizer{*model, communicator};
      for (int round = 0; round < 2; ++round) {  // the second with the buckets of a new plan, where that has changed
        loss_of(model->forward(inputs)).backward();
        EXPECT_TRUE(synchronizer.wait());
        synchronizer.zero_grad();
      }
    });
  });
}

}  // namespace
}  // namespace libtrain
