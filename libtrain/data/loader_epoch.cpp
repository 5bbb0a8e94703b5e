#include <libtrain/data/loader_epoch.hpp>

#include <chrono>
#include <utility>

namespace libtrain::data {

namespace {

class AddElapsedSeconds {
 public:
  explicit AddElapsedSeconds(std::atomic<double>& total) : total_(total) {}
  AddElapsedSeconds(const AddElapsedSeconds&) = delete;  // would count the time twice
  AddElapsedSeconds& operator=(const AddElapsedSeconds&) = delete;
  ~AddElapsedSeconds() {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    total_.fetch_add(elapsed.count());
  }

 private:
  std::atomic<double>& total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

LoaderEpoch::LoaderEpoch(std::uint64_t first_step, std::uint64_t steps, int workers, std::uint64_t window,
                         detail::OrderedPrefetcher<Batch>::Produce produce, std::atomic<double>& seconds_waiting)
    : seconds_waiting_(seconds_waiting), batches_(first_step, steps, workers, window, std::move(produce)) {}

std::optional<Batch> LoaderEpoch::next() {
  const AddElapsedSeconds timing(seconds_waiting_);
  return batches_.next();
}

}  // namespace libtrain::data
