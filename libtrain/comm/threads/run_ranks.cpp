#include <libtrain/comm/threads/run_ranks.hpp>

#include <exception>
#include <mutex>
#include <thread>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/host_communicator.hpp>
#include <libtrain/comm/threads/detail/thread_group.hpp>
#include <libtrain/comm/threads/detail/thread_transport.hpp>

namespace libtrain {

namespace detail {

void run_ranks_over(const ConnectRank& connect, int world_size, const std::function<void(Communicator&)>& body,
                    CommunicatorOptions options) {
  std::mutex mutex;
  std::exception_ptr first_failure;
  const auto failed = [&](std::exception_ptr failure) {
    const std::lock_guard lock(mutex);
    if (!first_failure) first_failure = std::move(failure);
  };
  const auto group = std::make_shared<ThreadGroup>(world_size);
  const auto rank_main = [&](int rank) {
    std::unique_ptr<detail::HostCommunicator> communicator;
    const auto tell = [&](const std::string& reason) {
      if (communicator) communicator->abort(reason, ExitCode::communication);
      group->abort(text("rank ", rank, " failed: ", reason));  // for those who still connect
    };
    try {
      communicator = std::make_unique<detail::HostCommunicator>(
          connect(std::make_unique<detail::ThreadTransport>(group, rank)), options);
      body(*communicator);
    } catch (const std::exception& error) {
      failed(std::current_exception());
      tell(error.what());
    } catch (...) {
      failed(std::current_exception());
      tell("an exception that is not a std::exception");
    }
  };

  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) threads.emplace_back(rank_main, rank);
  for (auto& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace detail

void run_ranks(int world_size, const std::function<void(Communicator&)>& body, CommunicatorOptions options) {
  const auto as_it_is = [](std::unique_ptr<HostTransport> transport) { return transport; };
  detail::run_ranks_over(as_it_is, world_size, body, options);
}

}  // namespace libtrain
