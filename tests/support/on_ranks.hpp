#pragma once

#include <chrono>
#include <functional>

#include <c10/core/Device.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::test {

using RankBody = std::function<void(Communicator&)>;

/// Runs `body` on every rank of groups of several sizes. Linked into the thread tests, the ranks are threads that
/// talk over a backend of choice, and the groups have 1, 2, 3 and 4 ranks; linked into the MPI tests, they are the
/// processes of the job.
void on_ranks(const RankBody& body);

/// The device of the tensors of the calling thread's rank; outside of on_ranks(), that of rank 0. It has no meaning on
/// threads that a test or autograd starts: hooks and functions of a backward pass use what was made before it.
at::Device device();

/// Whether every element type is tested at every size, and every number of ranks.
inline bool tests_all_sizes() {
  static const bool all = Environment::of_process().get("LIBTRAIN_TEST_ALL_SIZES").has_value();
  return all;
}

/// The same on groups of 1, 2, 3, 4 and 7 ranks where the ranks are threads, or on groups of 1 to 8 ranks.
void on_many_ranks(const RankBody& body);

/// The same with a bound on every wait, for tests in which a rank does not come. The group is not usable afterwards.
constexpr CommunicatorOptions kTenSeconds{.timeout = std::chrono::seconds(10)};
void on_fresh_ranks(int minimum_ranks, CommunicatorOptions options, const RankBody& body);

}  // namespace libtrain::test
