#include <libtrain/data/loader/bad_samples.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

// In floating point the product of a decimal fraction and a count may be slightly too small: 0.29 of 100 is 29.
std::uint64_t whole_samples(double rate, std::uint64_t dataset_size) {
  constexpr double kRoundingError = 2 * std::numeric_limits<double>::epsilon();
  return static_cast<std::uint64_t>(std::floor(rate * static_cast<double>(dataset_size) * (1 + kRoundingError)));
}

std::uint64_t allowed(const BadSampleOptions& options, std::uint64_t dataset_size) {
  if (const double rate = options.maximum_rate.value_or(0); !(rate >= 0 && rate <= 1)) {
    throw UsageError(text("maximum_rate is ", rate, ". It must be from 0 to 1."));
  }
  if (!options.maximum_count && !options.maximum_rate) return 0;
  return std::min(options.maximum_count.value_or(dataset_size),
                  whole_samples(options.maximum_rate.value_or(1), dataset_size));
}

std::string line_of(const BadSample& sample, int rank, const std::string& run_id) {
  nlohmann::ordered_json json{{"rank", rank},
                              {"epoch", sample.epoch},
                              {"index", sample.index},
                              {"path", sample.origin.path},
                              {"offset", sample.origin.offset},
                              {"reason", sample.reason},
                              {"replacement", sample.replacement}};
  if (!run_id.empty()) json["run_id"] = run_id;
  // Paths need not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Appends by one write, which writes of other processes to a local disk do not interrupt. Returns 0 or the errno.
int append(const std::filesystem::path& file, const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return errno;
  const auto written = ::write(descriptor, line.data(), line.size());
  const int error = written < 0 ? errno : written < std::ssize(line) ? ENOSPC : 0;
  ::close(descriptor);
  return error;
}

}  // namespace

BadSamples::BadSamples(const BadSampleOptions& options, std::uint64_t dataset_size, int rank,
                       const std::filesystem::path& folder, std::string run_id)
    : allowed_(allowed(options, dataset_size)),
      dataset_size_(dataset_size),
      rank_(rank),
      file_(folder.empty() ? folder : folder / "bad_samples.jsonl"),
      run_id_(std::move(run_id)) {}

void BadSamples::add(const BadSample& sample) {
  const std::lock_guard lock(mutex_);
  if (listed_.insert(sample.index).second) list(sample);
  indices_.insert(sample.index);
  if (indices_.size() > allowed_) {
    throw EnvironmentError(text("more than ", allowed_, " of ", dataset_size_, " samples are bad",
                                file_.empty() ? "" : text(" (listed in '", file_.string(), "')"),
                                ". The last one is sample ", sample.index, ": ", sample.reason));
  }
}

void BadSamples::resume(const std::vector<std::uint64_t>& indices) {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t index : indices) {
    if (index >= dataset_size_) {
      throw UsageError(text("The loader's state names the bad sample ", index, " of a data set of ", dataset_size_,
                            " samples. Resume with the data that it was saved for."));
    }
    indices_.insert(index);
  }
  if (indices_.size() > allowed_) {
    throw EnvironmentError(text("more than ", allowed_, " of ", dataset_size_, " samples are bad: ", indices_.size(),
                                " were found before the run stopped. Repair the data, or allow more bad samples."));
  }
}

std::uint64_t BadSamples::size() const {
  const std::lock_guard lock(mutex_);
  return indices_.size();
}

std::vector<std::uint64_t> BadSamples::indices() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> sorted(indices_.begin(), indices_.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

void BadSamples::list(const BadSample& sample) {
  if (!file_.empty()) {
    const int error = append(file_, line_of(sample, rank_, run_id_));
    if (error == 0) return;
    if (!has_warned_) {
      log_warning(text("Cannot write '", file_.string(), "' (", std::strerror(error),
                       "). Bad samples are reported in the log only."));
    }
    has_warned_ = true;
  }
  log_warning(text("Sample ", sample.index, " in '", sample.origin.path, "' is bad, and sample ", sample.replacement,
                   " replaces it: ", sample.reason));
}

std::uint64_t replacement_of(std::uint64_t bad, std::uint64_t seed, std::uint64_t epoch, std::uint64_t attempt,
                             std::uint64_t dataset_size) {
  using libtrain::detail::combine_keys;
  const auto other = combine_keys(combine_keys(combine_keys(seed, epoch), bad), attempt) % (dataset_size - 1);
  return other < bad ? other : other + 1;
}

}  // namespace libtrain::data
