// main() of the tests that run under mpirun: every rank runs the same tests in the same order, rank 0 prints, and a
// failure on any rank fails the job.

#include <cstdio>
#include <memory>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/backend.hpp>
#include <libtrain/comm/detail/hierarchy/hierarchical_transport.hpp>
#include <libtrain/comm/detail/mpi/connect_mpi.hpp>
#include <libtrain/launch/launch.hpp>

#include <tests/support/fork_child.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain::test {

namespace {

std::shared_ptr<Communicator> world;

// The world's own communicator, over MPI even for one rank.
std::shared_ptr<Communicator> connect_world(CommunicatorOptions options) {
  const auto environment = Environment::of_process();
  const WaitPolicy a_minute{.deadline = Deadline::after(std::chrono::seconds(60))};
  auto transport = detail::connect_mpi(a_minute.deadline);
  const auto backend = environment.get("LIBTRAIN_TEST_BACKEND").value_or("mpi");
  if (backend == "shared_memory") {
    transport = detail::HierarchicalTransport::connect(std::move(transport), {}, a_minute);
  } else if (backend == "hierarchy") {
    // Two hosts that are this one twice, with ranks dealt out in turn.
    const auto host = text("host ", transport->rank() % 2);
    transport = detail::HierarchicalTransport::connect(std::move(transport), {.host = host}, a_minute);
  }
  return communicate_over(std::move(transport), options);
}

}  // namespace

void on_ranks(const RankBody& body) {
  body(*world);
  world->barrier();
}

at::Device device() {
  return at::kCPU;
}

void on_many_ranks(const RankBody& body) {
  on_ranks(body);
}

void on_fresh_ranks(int minimum_ranks, CommunicatorOptions options, const RankBody& body) {
  if (world->world_size() < minimum_ranks) return;
  const auto fresh = connect_world(options);
  body(*fresh);
  world->barrier();
}

}  // namespace libtrain::test

int main(int argc, char** argv) {
  using libtrain::test::world;
  libtrain::test::end_with_parent();  // mpirun, when killed, leaves its ranks behind
  ::testing::InitGoogleTest(&argc, argv);
  // The program's own, as in one that used MPI before libtrain came: libtrain must leave MPI_Finalize to it, also after
  // the failures that the tests provoke.
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const auto launch = libtrain::detect_launch(libtrain::Environment::of_process());
  if (launch.launcher == libtrain::Launcher::single) {
    std::fprintf(stderr, "These tests need ranks: start them with mpirun -n 2 %s\n", argv[0]);
    return 1;
  }
  libtrain::set_log_identity(launch.rank.value, launch.world_size.value);
  world = libtrain::test::connect_world({.timeout = std::chrono::seconds(60)});
  if (world->rank() != 0) {
    // Other ranks print their failures only.
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    class Failures : public ::testing::EmptyTestEventListener {
      void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::fprintf(stderr, "rank %d: %s:%d: %s\n", world->rank(), result.file_name(), result.line_number(),
                     result.message());
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  const auto failed = at::full({1}, RUN_ALL_TESTS(), at::kInt);
  world->all_reduce(failed, libtrain::ReduceOp::maximum).wait();
  world.reset();
  MPI_Finalize();
  return failed.item<int>();
}
