#include <libtrain/comm/threads/run_ranks.hpp>

#include <exception>
#include <mutex>
#include <thread>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_communicator.hpp>
#include <libtrain/comm/threads/thread_transport.hpp>

namespace libtrain {

namespace detail {

void run_ranks_over(const ConnectRank& connect, int world_size, const std::function<void(Communicator&)>& body,
                    CommunicatorOptions options) {
  std::mutex mutex;
  std::exception_ptr first_failure;
  const auto rank_main = [&](std::unique_ptr<HostTransport> transport) {
    HostCommunicator communicator{connect(std::move(transport)), options};
    std::exception_ptr failure;
    std::string reason = "an exception that is not a std::exception";
    try {
      body(communicator);
      return;
    } catch (const std::exception& error) {
      failure = std::current_exception();
      reason = error.what();
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex);
      if (!first_failure) first_failure = failure;
    }
    communicator.abort(text("rank ", communicator.rank(), " failed: ", reason), ExitCode::communication);
  };

  std::vector<std::thread> threads;
  for (auto& transport : ThreadTransport::make_group(world_size)) {
    threads.emplace_back(rank_main, std::move(transport));
  }
  for (auto& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace detail

void run_ranks(int world_size, const std::function<void(Communicator&)>& body, CommunicatorOptions options) {
  const auto as_it_is = [](std::unique_ptr<HostTransport> transport) { return transport; };
  detail::run_ranks_over(as_it_is, world_size, body, options);
}

}  // namespace libtrain
