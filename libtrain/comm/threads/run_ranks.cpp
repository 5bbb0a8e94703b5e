#include <libtrain/comm/threads/run_ranks.hpp>

#include <exception>
#include <thread>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/first_failure.hpp>
#include <libtrain/comm/detail/host_communicator.hpp>
#include <libtrain/comm/threads/detail/thread_group.hpp>
#include <libtrain/comm/threads/detail/thread_transport.hpp>

namespace libtrain {

namespace detail {

void run_ranks_over(const ConnectRank& connect, int world_size, const std::function<void(Communicator&)>& body,
                    CommunicatorOptions options) {
  FirstFailure first_failure;
  const auto group = std::make_shared<ThreadGroup>(world_size);
  const auto rank_main = [&](int rank) {
    std::unique_ptr<detail::HostCommunicator> communicator;
    const auto failed = [&](const std::string& reason) {
      first_failure.set(std::current_exception());
      if (communicator) communicator->abort(reason, ExitCode::communication);
      group->abort(text("rank ", rank, " failed: ", reason));  // for ranks that still connect
    };
    try {
      communicator = std::make_unique<detail::HostCommunicator>(
          connect(std::make_unique<detail::ThreadTransport>(group, rank)), options);
      body(*communicator);
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {
      failed("an exception that is not a std::exception");
    }
  };

  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) threads.emplace_back(rank_main, rank);
  for (auto& thread : threads) thread.join();
  first_failure.throw_if_any();
}

}  // namespace detail

void run_ranks(int world_size, const std::function<void(Communicator&)>& body, CommunicatorOptions options) {
  const auto unchanged = [](std::unique_ptr<HostTransport> transport) { return transport; };
  detail::run_ranks_over(unchanged, world_size, body, options);
}

}  // namespace libtrain
