// Ranks as threads, over the backend that LIBTRAIN_TEST_BACKEND names: see connect_rank(). The hosts of a hierarchy are
// this one, twice.

#include <gtest/gtest.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/hierarchy/hierarchical_transport.hpp>
#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>
#include <libtrain/comm/detail/tcp/tcp_transport.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain::test {

namespace {

using Transport = std::unique_ptr<HostTransport>;

WaitPolicy a_minute() {
  return {.deadline = Deadline::after(std::chrono::seconds(60))};
}

Transport over_tcp(Transport base) {
  return detail::TcpTransport::connect(*base, {.master_address = "127.0.0.1"}, a_minute());
}

// Ranks 0 and 1 on one host, all others on another: hosts of equal size with 4 ranks, of different size with others.
Transport over_two_hosts(Transport base) {
  const auto host = text("host ", base->rank() < 2 ? 0 : 1);
  return detail::HierarchicalTransport::connect(std::move(base), {.host = host}, a_minute());
}

Transport connect_rank(Transport base) {
  static const auto backend = Environment::of_process().get("LIBTRAIN_TEST_BACKEND").value_or("threads");
  if (backend == "threads" || base->world_size() == 1) return base;
  if (backend == "shared_memory") return detail::SharedMemoryTransport::connect(*base, a_minute());
  if (backend == "tcp") return over_tcp(std::move(base));
  if (backend == "hierarchy_threads") return over_two_hosts(std::move(base));
  if (backend == "hierarchy_tcp") return over_two_hosts(over_tcp(std::move(base)));
  throw UsageError(text("LIBTRAIN_TEST_BACKEND is '", backend, "'."));
}

}  // namespace

void on_ranks(const RankBody& body) {
  for (const int world_size : {1, 2, 3, 4}) {
    SCOPED_TRACE(world_size);
    detail::run_ranks_over(connect_rank, world_size, body, {.timeout = std::chrono::seconds(60)});
  }
}

at::Device device() {
  return at::kCPU;
}

void on_many_ranks(const RankBody& body) {
  for (const int world_size : {1, 2, 3, 4, 5, 6, 7, 8}) {
    if (!tests_all_sizes() && (world_size == 5 || world_size == 6 || world_size == 8)) continue;
    SCOPED_TRACE(world_size);
    detail::run_ranks_over(connect_rank, world_size, body, {.timeout = std::chrono::seconds(60)});
  }
}

void on_fresh_ranks(int minimum_ranks, CommunicatorOptions options, const RankBody& body) {
  for (int world_size = minimum_ranks; world_size <= 4; ++world_size) {
    SCOPED_TRACE(world_size);
    detail::run_ranks_over(connect_rank, world_size, body, options);
  }
}

}  // namespace libtrain::test
