#include <chrono>
#include <optional>
#include <thread>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/train/trainer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::BlockedStream;
using test::device;
using test::message_of;
using test::on_ranks;
using test::trainer::kEpochs;
using test::trainer::options_of;
using test::trainer::Parts;
using test::trainer::small_model;
using test::trainer::TestRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The host queues the steps in less time than they take.
TEST(TrainerOnDevice, CountsTheTimeOfTheDevice) {
  constexpr std::chrono::milliseconds kBlocked{400};
  on_ranks([&](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Parts parts{{}, *context};
    auto options = options_of({});
    const auto steps = static_cast<std::int64_t>(parts.loader.batches_per_epoch());
    options.log_every_steps = steps;
    options.checkpoints.enabled = false;
    Trainer trainer{*context, parts.model, *parts.plain, options};
    std::optional<BlockedStream> blocked;
    std::thread releases;
    trainer.fit(parts.loader, [&](const data::Batch& batch) {
      const auto loss = parts.loss(batch);
      if (trainer.state().step == steps - 1) {
        blocked.emplace(c10::impl::VirtualGuardImpl(device().type()).getStream(device()));
        releases = std::thread([&] {
          std::this_thread::sleep_for(kBlocked);
          blocked.reset();
        });
      }
      return loss;
    });
    releases.join();
    communicator.barrier();
    if (communicator.rank() != 0) return;
    const auto rates = run.records("step", "samples_per_s");
    const double samples = static_cast<double>(trainer.state().samples) / kEpochs;
    EXPECT_LT(rates.at(steps), samples / std::chrono::duration<double>(kBlocked).count());
  });
}

// The buckets of a rank that leaves parameters out are full sooner than those of the others.
TEST(TrainerOnDevice, RefusesToReducePartsWithUnusedParametersInBackward) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    const auto add_parts = [&](Overlap overlap) {
      auto first = small_model(8);
      auto second = small_model(9);
      torch::optim::SGD of_first{first->parameters(), torch::optim::SGDOptions(0.1)};
      torch::optim::SGD of_second{second->parameters(), torch::optim::SGDOptions(0.1)};
      Trainer trainer{*context, {.synchronizer = {.unused = UnusedParameters::allowed, .overlap = overlap}}};
      trainer.add("first", first, of_first);
      trainer.add("second", second, of_second);
    };
    if (communicator.world_size() == 1) return add_parts(Overlap::backward);
    EXPECT_THAT(message_of<UsageError>([&] { add_parts(Overlap::backward); }),
                AllOf(HasSubstr("'second'"), HasSubstr("Overlap::none")));
    add_parts(Overlap::none);
  });
}

}  // namespace
}  // namespace libtrain
