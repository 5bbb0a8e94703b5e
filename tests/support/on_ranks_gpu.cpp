// main() of the tests on a real GPU, cuda:0. One rank uses NCCL; several ranks are threads that stage through host
// memory, because NCCL refuses two ranks of one process on one GPU. If LIBTRAIN_TEST_DIST_URL is set, this process is
// one rank of the job that RANK and WORLD_SIZE describe, and all ranks use NCCL; on one GPU each then needs its own
// NCCL_HOSTID. scripts/gpu_check.sh starts both.

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/backend.hpp>
#include <libtrain/comm/detail/device/device_communicator.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>
#include <libtrain/comm/detail/nccl/cuda_library.hpp>
#include <libtrain/comm/detail/nccl/nccl_launcher.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>
#include <libtrain/launch/launch.hpp>

#include <tests/support/fork_child.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain::test {

namespace {

constexpr CommunicatorOptions kOneMinute{.timeout = std::chrono::seconds(60)};

std::unique_ptr<Communicator> over_nccl(std::shared_ptr<Communicator> control, CommunicatorOptions options) {
  return std::make_unique<detail::DeviceCommunicator>(std::move(control), detail::nccl_launcher(device()), options,
                                                      nullptr);
}

// Of a single rank, for all tests that do not ask for a fresh one: NCCL takes half a second to connect.
std::unique_ptr<Communicator> lone_rank;

void run_gpu_ranks(int world_size, CommunicatorOptions options, bool is_fresh, const RankBody& body) {
  SCOPED_TRACE(world_size);
  const auto run = [&](Communicator& ranks) {
    if (world_size == 1 && !is_fresh) {
      if (!lone_rank) lone_rank = over_nccl(connect_host_memory({Launch{}, options, options.timeout}), options);
      return body(*lone_rank);
    }
    auto control = ranks.split(0, ranks.rank());
    if (world_size == 1) return body(*over_nccl(std::move(control), options));
    // Autograd has one thread for each GPU. These ranks would share it, and one that waits for its peers in a backward
    // pass, as SyncBatchNorm does, would keep them from arriving.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    detail::StagedCommunicator communicator(std::move(control), device());
    body(communicator);
  };
  run_ranks(world_size, run, options);
}

// The processes of a job.
class Job {
 public:
  explicit Job(std::string url) : url_(std::move(url)), world_(connect(kOneMinute)) {}

  Communicator& world() { return *world_; }

  // All ranks call it, equally often.
  std::unique_ptr<Communicator> connect(CommunicatorOptions options) {
    const auto launch = detect_launch(Environment::of_process(), {.dist_url = text(url_, '-', ++connections_)});
    set_log_identity(launch.rank.value, launch.world_size.value);
    return over_nccl(connect_host_memory({launch, options, kOneMinute.timeout}), options);
  }

 private:
  std::string url_;
  int connections_ = 0;
  std::unique_ptr<Communicator> world_;
};

std::optional<Job> job;

void run_everywhere(const RankBody& body) {
  body(job->world());
  job->world().barrier();
}

}  // namespace

at::Device device() {
  return {at::kCUDA, 0};
}

void on_ranks(const RankBody& body) {
  if (job) return run_everywhere(body);
  for (const int world_size : {1, 2, 3, 4}) run_gpu_ranks(world_size, kOneMinute, /*is_fresh=*/false, body);
}

void on_many_ranks(const RankBody& body) {
  if (job) return run_everywhere(body);
  for (const int world_size : {1, 2, 3, 4, 7}) run_gpu_ranks(world_size, kOneMinute, /*is_fresh=*/false, body);
}

void on_fresh_ranks(int minimum_ranks, CommunicatorOptions options, const RankBody& body) {
  if (!job) {
    for (int world_size = minimum_ranks; world_size <= 4; ++world_size)
      run_gpu_ranks(world_size, options, /*is_fresh=*/true, body);
  } else if (job->world().world_size() >= minimum_ranks) {
    body(*job->connect(options));
    job->world().barrier();
  }
}

namespace {

// Results are compared with the CPU's, and between runs.
void compute_exactly() {
  auto& context = at::globalContext();
  context.setAllowTF32CuDNN(false);  // cuBLAS' is off by default
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);
}

// Why there is no usable GPU; empty if there is one. Called before LibTorch is asked for CUDA, because it looks for its
// CUDA part only once.
std::string load_cuda() {
  const auto& visible = detail::visible_gpus();
  return visible.gpus.empty() ? visible.problem : detail::load_cuda_library();
}

int run_tests() {
  if (const auto problem = load_cuda(); !problem.empty()) {
    std::fprintf(stderr, "gpu_tests: no usable GPU: %s. Run it on a machine with one.\n", problem.c_str());
    return static_cast<int>(ExitCode::environment);
  }
  compute_exactly();
  if (const auto url = Environment::of_process().get("LIBTRAIN_TEST_DIST_URL")) job.emplace(*url);
  const int result = RUN_ALL_TESTS();
  job.reset();
  lone_rank.reset();
  return result;
}

}  // namespace

}  // namespace libtrain::test

int main(int argc, char** argv) {
  libtrain::test::end_with_parent();
  ::testing::InitGoogleTest(&argc, argv);
  return libtrain::test::run_tests();
}
