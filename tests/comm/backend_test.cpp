// Backends that a program registers.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/backend.hpp>
#include <libtrain/comm/connect.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>
#include <libtrain/train/run.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

Launch launch_of(const std::string& backend, int rank = 0, int world_size = 1) {
  return detect_launch(
      Environment{},
      {.rank = rank, .world_size = world_size, .dist_url = "tcp://127.0.0.1:1", .dist_backend = backend});
}

TEST(Backends, OfAProgramConnectTheRanksThatAskForThemByName) {
  static thread_local Communicator* ranks = nullptr;
  register_backend({.name = "toy", .connect = [](const ConnectRequest& request) {
                      EXPECT_EQ(request.options.timeout, std::chrono::seconds(7));
                      EXPECT_EQ(request.connect_timeout, std::chrono::seconds(9));
                      return ranks->split(0, request.launch.rank.value);
                    }});
  EXPECT_THAT(backend_names(), Contains("toy"));
  run_ranks(2, [](Communicator& threads) {
    ranks = &threads;
    const auto launch = launch_of("Toy", threads.rank(), 2);
    const auto communicator = connect(launch, {.device = DeviceChoice::cpu,
                                               .communicator = {.timeout = std::chrono::seconds(7)},
                                               .connect_timeout = std::chrono::seconds(9)})
                                  .communicator;
    const auto tensor = torch::full({3}, 1.0F + static_cast<float>(threads.rank()));
    communicator->all_reduce(tensor).wait();
    EXPECT_TRUE(tensor.equal(torch::full({3}, 3.0F)));
  });
}

class ToyCommunicator : public detail::SingleCommunicator {
 public:
  std::string_view backend() const override { return "toy"; }
};

TEST(Backends, OfAProgramServeRun) {
  register_backend({.name = "toy", .connect = [](const ConnectRequest& request) {
                      EXPECT_EQ(connect_host_memory(request)->world_size(), 1);
                      return std::make_shared<ToyCommunicator>();
                    }});
  const test::TemporaryFolder folder;
  std::vector<std::string> words{"program", "--quiet", "--output", folder.path().string(), "--dist-backend", "toy"};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  std::string backend;
  EXPECT_EQ(run(static_cast<int>(arguments.size()), arguments.data(),
                [&](Context& context) { backend = context.communicator().backend(); }),
            0);
  EXPECT_EQ(backend, "toy");
}

TEST(Backends, SayWhyTheyCannotServe) {
  register_backend({.name = "broken",
                    .why_unavailable = [](const Launch& launch) { return launch.backend.value + " has no card."; },
                    .connect = [](const ConnectRequest&) { return std::make_shared<detail::SingleCommunicator>(); }});
  EXPECT_EQ(message_of<EnvironmentError>([] { connect(launch_of("broken"), {.device = DeviceChoice::cpu}); }),
            "broken has no card.");
}

TEST(Backends, ThatAreUnknownAreAnsweredWithTheKnownOnes) {
  register_backend({.name = "toy2", .connect = connect_host_memory});
  EXPECT_THAT(message_of<EnvironmentError>([] { connect(launch_of("ucx"), {.device = DeviceChoice::cpu}); }),
              AllOf(HasSubstr("'ucx' (--dist-backend) is not known"), HasSubstr("auto, gloo, tcp, mpi, nccl"),
                    HasSubstr("toy2")));
}

TEST(Backends, BuiltInOnesServeOneProcess) {
  for (const auto* name : {"auto", "gloo", "tcp", "mpi"}) {
    const auto connection = connect(launch_of(name), {.device = DeviceChoice::cpu});
    EXPECT_EQ(connection.communicator->backend(), "single");
    EXPECT_EQ(connection.device, at::kCPU);
  }
}

TEST(Backends, OfGpusRefuseTheCpu) {
  register_backend({.name = "gpus", .connect = connect_host_memory, .needs_gpus = true});
  EXPECT_EQ(
      message_of<UsageError>([] { connect(launch_of("gpus"), {.device = DeviceChoice::cpu}); }),
      "Backend 'gpus' (--dist-backend) is for GPUs, but the device is the CPU. Use --dist-backend auto, or another "
      "--device.");
}

TEST(Backends, NeedANameThatCanBeAskedForAndAWayToConnect) {
  for (const auto* name : {"", "Toy", "a b", "--x"}) {
    EXPECT_THAT(message_of<UsageError>([&] { register_backend({.name = name, .connect = connect_host_memory}); }),
                HasSubstr("lower-case letters"));
  }
  EXPECT_THAT(message_of<UsageError>([] { register_backend({.name = "mute", .connect = {}}); }),
              HasSubstr("'mute': it has no connect function"));
}

}  // namespace
}  // namespace libtrain
