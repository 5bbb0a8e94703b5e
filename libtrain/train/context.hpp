#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/trace.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/rank_shard.hpp>
#include <libtrain/data/storage/storage.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/progress.hpp>
#include <libtrain/train/data_access.hpp>

namespace libtrain {

/// What a program was asked for: by its command line, or by itself where it makes its own Context.
struct RunOptions {
  std::string output = "outputs";  ///< folder for metrics.jsonl and whatever else the run writes
  std::uint64_t seed = 0;          ///< of weights, data order and augmentation
  bool quiet = false;              ///< no progress
  DataAccess data = {};
  std::map<std::string, std::string> options = {};  ///< the program's own, by name
  bool declared = true;  ///< false: the program does not say which options it has, see Context::unused_options()
};

/// What a program running under `run` knows of itself: who it is, how it talks to its peers, what it was asked to do.
/// Belongs to the thread that runs the program's body.
class Context {
 public:
  /// `launch` tells a GPU's local rank, and metrics.jsonl which launcher it was. `trace` must outlive the context.
  explicit Context(std::shared_ptr<Communicator> communicator, RunOptions options = {}, Launch launch = {},
                   std::string run_id = {}, TraceSink* trace = nullptr);

  int rank() const { return communicator_->rank(); }
  int world_size() const { return communicator_->world_size(); }
  Communicator& communicator() { return *communicator_; }
  const Launch& launch() const { return launch_; }

  /// 32 hexadecimal digits that tell this run from all others, the same on all ranks: "run_id" of its records.
  const std::string& run_id() const { return run_id_; }

  /// Where this rank's tensors belong.
  c10::Device device() const { return device_; }

  /// This rank's share of the data, for a DataLoader.
  data::RankShard shard() const;

  /// The data at `--name`, a local folder or a URI: on this node's disk with `--stage DIR`, where they are copied
  /// first, once per node; through a cache with `--cache DIR`; else as they are. All ranks must call it. Throws
  /// UsageError as option() and for `--stage` together with `--cache`, EnvironmentError where the data cannot be opened
  /// or copied, on all ranks where one of them cannot copy.
  std::shared_ptr<const data::Storage> storage(std::string_view name);

  /// `--seed`, the same on every rank. torch's generator was seeded from it, differently on each rank, so that dropout
  /// does not repeat itself; a GradientSynchronizer makes rank 0's weights everyone's.
  std::uint64_t seed() const;

  /// The value of `--name`. Throws UsageError where it was not given and has no default.
  std::string option(std::string_view name) const;

  /// The same as a whole number, or as a finite number, in [minimum, maximum]; UsageError for anything else.
  std::int64_t integer(std::string_view name, std::int64_t minimum = 0, std::int64_t maximum = INT64_MAX) const;
  double number(std::string_view name, double minimum = std::numeric_limits<double>::lowest(),
                double maximum = std::numeric_limits<double>::max()) const;

  /// `--output`. Rank 0 writes there; bad_samples.jsonl is written by all.
  const std::filesystem::path& output_directory() const { return output_directory_; }

  /// DIR/metrics.jsonl on rank 0, nowhere on the others. The first call opens the file and writes the `run` event (so
  /// that a run which fails before it leaves nothing behind); `run` writes the last line: see `summary`. Throws
  /// EnvironmentError where the file cannot be written, or where another run is writing to it. `in_use` counts for the
  /// first call.
  MetricsWriter& metrics(MetricsWriter::InUse in_use = MetricsWriter::InUse::refused);

  /// The `summary` event, written when the body has returned. It starts with the number of ranks; `run` adds the run's
  /// seconds and the peak memory of the largest rank. Rank 0's is the one that is written: a number in it that is not
  /// finite makes the run fail. Set what has no value to null.
  Record& summary() { return summary_; }

  /// On rank 0, unless `--quiet`.
  Progress& progress() { return progress_; }

  /// What `--timeline FILE` shows of this rank; null without it. For SynchronizerOptions::trace and TraceSpan.
  TraceSink* trace() const { return trace_; }

  /// Of a program that declares no options: those that were given and that it has not asked for by now.
  std::vector<std::string> unused_options() const;

  /// Whether storage() was called: otherwise `--stage` and `--cache` had no effect.
  bool has_opened_storage() const { return has_opened_storage_; }

  /// Seconds since the run started on this rank.
  double seconds() const { return stopwatch_.seconds(); }

 private:
  Launch launch_;
  RunOptions options_;
  std::filesystem::path output_directory_;
  std::shared_ptr<Communicator> communicator_;
  std::string run_id_;
  c10::Device device_;
  std::optional<MetricsWriter> metrics_;
  Record summary_;
  Progress progress_;
  TraceSink* trace_;
  bool has_opened_storage_ = false;
  mutable std::mutex asked_mutex_;  // a transform may ask on the loader's threads
  mutable std::set<std::string> asked_;
  Stopwatch stopwatch_;
};

}  // namespace libtrain
