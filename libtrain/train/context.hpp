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
#include <libtrain/base/stop_request.hpp>
#include <libtrain/base/trace.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/connect.hpp>
#include <libtrain/data/rank_shard.hpp>
#include <libtrain/data/storage/storage.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/progress.hpp>
#include <libtrain/train/data_access.hpp>

namespace libtrain {

/// The options of a run, from the command line and `--config FILE`, or from a program that creates its own Context.
struct RunOptions {
  std::string output = "outputs";     ///< folder for metrics.jsonl and the other files of the run
  std::uint64_t seed = 0;             ///< seed of weights, data order and augmentation
  bool quiet = false;                 ///< no progress
  std::string resume = "auto";        ///< see Context::resume()
  std::string checkpoint_store = {};  ///< see Context::checkpoint_store()
  Deadline stop_at = Deadline::never();
  DataAccess data = {};
  std::map<std::string, std::string> options = {};  ///< the program's own options by name
  std::set<std::string> may_change = {};            ///< those of them for which Option::may_change is true
  bool declared = true;  ///< false: the program declares no options, see Context::unused_options()
  std::map<std::string, std::string> common = {};  ///< options of every program that were given, for metrics.jsonl
};

/// The state of a program under `run`: rank, communicator, options, data and output. Belongs to the thread that runs
/// the program's body.
class Context {
 public:
  /// `connection` is the result of connect(), or a communicator and the device whose tensors it accepts. `launch` gives
  /// the launcher for metrics.jsonl. `trace` must outlive the context.
  explicit Context(Connection connection, RunOptions options = {}, Launch launch = {}, std::string run_id = {},
                   TraceSink* trace = nullptr);

  int rank() const { return communicator_->rank(); }
  int world_size() const { return communicator_->world_size(); }
  Communicator& communicator() { return *communicator_; }
  const Launch& launch() const { return launch_; }

  /// 32 hexadecimal digits that identify this run, the same on all ranks: "run_id" of its records.
  const std::string& run_id() const { return run_id_; }

  /// The device of this rank's tensors: `--device`. In the body of `run` a GPU is the current device of the thread, and
  /// its current stream is not the default stream (see run()).
  c10::Device device() const { return device_; }

  /// This rank's share of the data, for a DataLoader.
  data::RankShard shard() const;

  /// The data at `--name`, a local folder or a URI. With `--stage DIR` they are first copied to this node's disk, once
  /// per node; with `--cache DIR` they are read through a cache; otherwise they are read directly. All ranks must call
  /// it. Throws UsageError as option() and for `--stage` together with `--cache`, EnvironmentError if the data cannot
  /// be opened or copied (on all ranks if one of them cannot copy).
  std::shared_ptr<const data::Storage> storage(std::string_view name);

  /// `--seed`, the same on every rank. `run` seeds torch's generator from it, differently on each rank, so that dropout
  /// masks differ, also those of the GPUs; a program that creates its own Context must call torch::manual_seed itself.
  std::uint64_t seed() const;

  /// What a resumed run must have in common with the run that it continues: the program's own options, except those for
  /// which Option::may_change is true, and "seed".
  std::map<std::string, std::string> fixed_options() const;

  /// The value of `--name`, from the command line or `--config FILE`. Throws UsageError if it was not given and has no
  /// default.
  std::string option(std::string_view name) const;

  /// The same as a whole number, or as a finite number, in [minimum, maximum]; UsageError for anything else.
  std::int64_t integer(std::string_view name, std::int64_t minimum = 0, std::int64_t maximum = INT64_MAX) const;
  double number(std::string_view name, double minimum = std::numeric_limits<double>::lowest(),
                double maximum = std::numeric_limits<double>::max()) const;

  /// The value of `--name`, which must be one of `words`: UsageError, which lists them, for anything else.
  std::string choice(std::string_view name, const std::vector<std::string>& words) const;

  /// The value of an option that is a flag (Option::flag); UsageError for anything but true and false.
  bool flag(std::string_view name) const;

  /// `--output`. Rank 0 writes there; all ranks write bad_samples.jsonl.
  const std::filesystem::path& output_directory() const { return output_directory_; }

  /// Writes DIR/metrics.jsonl on rank 0, and nothing on the other ranks. The first call opens the file and writes the
  /// `run` event (so that a run which fails before it creates no file); `run` writes the last line: see `summary`.
  /// Throws EnvironmentError if the file cannot be written or another run is writing to it. Only the first call uses
  /// `in_use`.
  MetricsWriter& metrics(MetricsWriter::InUse in_use = MetricsWriter::InUse::refused);

  /// The `summary` event, written when the body has returned. It starts with the number of ranks; `run` adds the run's
  /// seconds and the largest peak memory of a rank: "peak_rss_bytes", on GPUs also "peak_gpu_memory_bytes", what
  /// LibTorch's allocator has reserved. Rank 0's summary is written: if a number in it is not finite, the run fails.
  /// Set a member without a value to null.
  Record& summary() { return summary_; }

  /// Shown on rank 0, unless `--quiet` is given.
  Progress& progress() { return progress_; }

  /// Takes the spans of this rank for `--timeline FILE`; null without it. For SynchronizerOptions::trace and TraceSpan.
  TraceSink* trace() const { return trace_; }

  /// If the program declares no options: the given options that it has not read so far.
  std::vector<std::string> unused_options() const;

  /// `--resume`: "auto" (continue the run in `--output`, if there is one), "none" (start anew), or the path of a
  /// checkpoint or of a folder of checkpoints. A Trainer follows it.
  const std::string& resume();

  /// `--checkpoint-store`: a location in an object store to which checkpoints are copied, or empty. A Trainer copies
  /// them to TrainerCheckpoints::folder below it; see CheckpointOptions::store.
  const std::string& checkpoint_store();

  /// Whether this rank was asked to stop, by a signal or by `--max-minutes`. The first call installs the handlers of
  /// signals (see StopRequest); without it SIGTERM ends the process at once. A Trainer calls it.
  const StopRequest& stop_request();

  /// From here on a signal ends the process at once again.
  void end_stop_request() { stop_request_.reset(); }

  /// Those of `--resume`, `--checkpoint-store` and `--max-minutes` that were given and not read.
  std::vector<std::string> unused_run_options() const;

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
  bool has_read_resume_ = false;
  bool has_read_store_ = false;
  bool has_read_stop_ = false;
  std::optional<StopRequest> stop_request_;
  mutable std::mutex asked_mutex_;  // transforms may call option() on the loader's threads
  mutable std::set<std::string> asked_;
  Stopwatch stopwatch_;
};

}  // namespace libtrain
