#include <libtrain/data/loader/bad_samples.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
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

// The product of a decimal fraction and a count may come out a little less than it is: 0.29 of 100 is 29.
std::uint64_t whole_samples(double rate, std::uint64_t dataset_size) {
  constexpr double kRoundingError = 2 * std::numeric_limits<double>::epsilon();
  return static_cast<std::uint64_t>(std::floor(rate * static_cast<double>(dataset_size) * (1 + kRoundingError)));
}

std::uint64_t allowed(const BadSampleOptions& options, std::uint64_t dataset_size) {
  if (const double rate = options.maximum_rate.value_or(0); !(rate >= 0 && rate <= 1)) {
    throw UsageError(text("maximum_rate is ", rate, ": it must be from 0 to 1."));
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

// One write to the end of the file: on a disk of this machine, those of other processes do not come in between.
bool append(const std::filesystem::path& file, const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return false;
  const auto written = ::write(descriptor, line.data(), line.size());
  const int error = errno;
  ::close(descriptor);
  errno = written < 0 ? error : ENOSPC;
  return written == static_cast<ssize_t>(line.size());
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
                                file_.empty() ? "" : text(", as '", file_.string(), "' lists"),
                                "; the last one is number ", sample.index, ": ", sample.reason));
  }
}

void BadSamples::resume(const std::vector<std::uint64_t>& indices) {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t index : indices) {
    if (index >= dataset_size_) {
      throw UsageError(text("The loader's state names the bad sample ", index, " of a data set of ", dataset_size_,
                            " samples: resume with the data that it was saved for."));
    }
    indices_.insert(index);
  }
  if (indices_.size() > allowed_) {
    throw EnvironmentError(text("more than ", allowed_, " of ", dataset_size_, " samples are bad: ", indices_.size(),
                                " were met before the run stopped; repair the data, or allow more bad samples"));
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
  if (!file_.empty() && append(file_, line_of(sample, rank_, run_id_))) return;
  if (!file_.empty() && !has_warned_) {
    has_warned_ = true;
    log_warning(text("Cannot write '", file_.string(), "' (", std::strerror(errno), "): bad samples are logged only."));
  }
  log_warning(text("Sample ", sample.index, " in '", sample.origin.path, "' is bad, number ", sample.replacement,
                   " takes its place: ", sample.reason));
}

std::uint64_t replacement_of(std::uint64_t index, std::uint64_t seed, std::uint64_t epoch, std::uint64_t attempt,
                             std::uint64_t dataset_size) {
  using libtrain::detail::combine_keys;
  return combine_keys(combine_keys(combine_keys(seed, epoch), index), attempt) % dataset_size;
}

}  // namespace libtrain::data
