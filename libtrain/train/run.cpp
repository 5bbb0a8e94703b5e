#include <libtrain/train/run.hpp>

#include <signal.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <libtrain/base/detail/heap.hpp>
#include <libtrain/base/detail/standard_output.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/stop_request.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/connect.hpp>
#include <libtrain/launch/detail/describe.hpp>
#include <libtrain/train/detail/body_stream.hpp>
#include <libtrain/train/detail/command_line.hpp>
#include <libtrain/train/detail/core_share.hpp>
#include <libtrain/train/detail/failed_run.hpp>
#include <libtrain/train/detail/peak_memory.hpp>
#include <libtrain/train/detail/run_id.hpp>
#include <libtrain/train/failure_report.hpp>
#include <libtrain/train/timeline.hpp>

namespace libtrain {

namespace {

using detail::CommandLine;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

// For ranks that the program has connected.
Launch launch_of(const Communicator& communicator) {
  const std::string source = "the program's communicator";
  Launch launch;
  launch.rank = {communicator.rank(), source};
  launch.world_size = {communicator.world_size(), source};
  launch.rendezvous = {"none", source};
  return launch;
}

// The source of each value. A single process has none to report.
void log_launch(const Launch& launch) {
  const auto& [rank, rank_source] = launch.rank;
  const auto& [world_size, world_size_source] = launch.world_size;
  if (world_size > 1) {
    log_info(text("rank ", rank, " of ", world_size, " (", rank_source, ", ", world_size_source, "), launched by ",
                  to_string(launch.launcher), ", rendezvous over ", launch.rendezvous.value, " (",
                  launch.rendezvous.source, "). libtrain-info prints the details."));
  }
  for (const auto& line : detail::describe(launch)) log_debug(line);
  for (const auto& warning : launch.warnings) log_warning(warning);
}

void share_cores(const CommandLine& line, Communicator& communicator) {
  const auto fair = detail::fair_thread_count(detail::gather_cores(communicator), communicator.rank());
  if (line.threads) {
    at::set_num_threads(*line.threads);
  } else if (!Environment::of_process().has("OMP_NUM_THREADS")) {
    at::set_num_threads(fair);
  }
}

// Otherwise a diverged run would end with null in the summary and exit code 0. Only rank 0's summary is written; a rank
// whose last batch was empty may have no loss.
void require_finite_summary(Context& context) {
  if (context.rank() != 0) return;
  const auto names = context.summary().non_finite();
  if (names.empty()) return;
  throw UsageError(
      text("The run has ended with NaN or infinity as its ", join(names, ", "),
           ": the training has diverged, or nothing was measured. Lower the learning rate, clip gradients, "
           "or set NonFinite::fatal to find the first non-finite gradient."));
}

void write_summary_event(Context& context) {
  context.summary()
      .set("seconds", context.seconds())
      .set("peak_rss_bytes", detail::peak_rss_of_ranks(context.communicator()));
  if (context.device().is_cuda()) {
    context.summary().set("peak_gpu_memory_bytes",
                          detail::peak_gpu_memory_of_ranks(context.device(), context.communicator()));
  }
  // A program that opens its metrics only now must not fail after its work because another run has opened the file.
  context.metrics(MetricsWriter::InUse::shared).write(context.summary());
}

// Called before the failure is reported: the rank that reports it ends the job, including ranks that are still writing.
void write_own_timeline(const Timeline& timeline, const CommandLine& line, int rank) {
  try {
    // No file per rank can be created next to a device or a pipe.
    if (!detail::OutputFile::replaces(line.timeline)) return;
    timeline.write_local(text(line.timeline, ".rank", rank));
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

void warn_of_unused_options(const Context& context, const CommandLine& line) {
  if (context.rank() != 0) return;
  for (const auto& name : context.unused_options()) {
    log_warning(text("--", name, " had no effect: this program does not read it. Check the name of the option."));
  }
  for (const auto& name : context.unused_run_options()) {
    log_warning(text(name, " had no effect: no Trainer with checkpoints has trained. Remove the option."));
  }
  if (context.has_opened_storage()) return;
  for (const auto& [name, value] :
       {std::pair{"--stage", line.run.data.stage}, std::pair{"--cache", line.run.data.cache}}) {
    if (!value.empty())
      log_warning(
          text(name, " had no effect: this program opens its data without Context::storage(). Remove the option."));
  }
}

// Returns why and where all ranks have stopped, if they were asked to.
std::optional<std::string> call_until_stopped(const std::function<void(Context&)>& body, Context& context) {
  try {
    body(context);
    return std::nullopt;
  } catch (const StoppedOnRequest& stopped) {
    return stopped.what();
  }
}

// Returns the exit code.
ExitCode run_body(const Launch& launch, const CommandLine& line, const Connection& connection,
                  const std::string& run_id, const std::function<void(Context&)>& body) {
  const auto& communicator = connection.communicator;
  std::optional<CallPurpose> purpose{std::in_place, *communicator, "the start of run()"};
  // Fails before the data are read. Creates nothing: metrics.jsonl appears with the first record.
  if (communicator->rank() == 0) MetricsWriter::require_free(line.run.output);
  share_cores(line, *communicator);
  const detail::BodyStream stream{connection.device};
  // An odd constant makes the ranks' seeds differ; rank 0 has the run's seed. This also seeds the GPUs' generators.
  torch::manual_seed(line.run.seed + 0x9E3779B97F4A7C15ull * static_cast<std::uint64_t>(communicator->rank()));
  std::optional<Timeline> timeline;
  if (!line.timeline.empty()) {
    timeline.emplace(*communicator);
    timeline->require_writable(line.timeline);
  }
  try {
    Context context{connection, line.run, launch, run_id, timeline ? &timeline->sink() : nullptr};
    purpose.reset();
    const auto stopped = call_until_stopped(body, context);
    // A GPU may find an error after the body has queued its last work.
    stream.synchronize();
    purpose.emplace(*communicator, "the end of run(), whose body has returned");
    warn_of_unused_options(context, line);
    if (!stopped) require_finite_summary(context);
    write_summary_event(context);
    if (timeline) timeline->write(line.timeline);
    detail::require_printed();
    if (stopped && context.rank() == 0) log_info(*stopped);
    communicator->barrier();
    return stopped ? ExitCode::stopped : ExitCode::success;
  } catch (...) {
    if (timeline) write_own_timeline(*timeline, line, communicator->rank());
    throw;
  }
}

void ignore_unless_handled(int signal) {
  struct sigaction action{};
  if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) std::signal(signal, SIG_IGN);
}

int run_rank(int argc, char** argv, const Program& program, Connection connection,
             const std::function<void(Context&)>& body) {
  detail::reserve_standard_descriptors();
  // A closed pipe of the output, or a file that is too large, must not end the process without a word.
  for (const int signal : {SIGPIPE, SIGXFSZ}) ignore_unless_handled(signal);
  detail::keep_heap();
  detail::record_continues();
  std::optional<Launch> launch;
  const auto failed = std::make_shared<detail::FailedRun>();
  try {
    const auto line = detail::parse_command_line(argc, argv, program);
    if (line.help) {
      std::fputs(line.help->c_str(), stdout);
      detail::require_printed();
      return 0;
    }
    auto& communicator = connection.communicator;
    launch = communicator ? launch_of(*communicator) : detect_launch(Environment::of_process(), line.launch);
    set_log_identity(launch->rank.value, launch->world_size.value);
    log_launch(*launch);
    if (!communicator) {
      ConnectOptions options{.device = line.device, .communicator = {.timeout = milliseconds_of(line.timeout_s)}};
      options.connect_timeout = milliseconds_of(line.connect_timeout_s.value_or(line.timeout_s));
      options.on_failure = detail::FailedRun::reporter(failed, *launch);
      connection = connect(*launch, options);
    }
    const auto run_id = detail::agree_on_run_id(*communicator);
    failed->follow(communicator, line.run.output, run_id);
    return static_cast<int>(run_body(*launch, line, connection, run_id, body));
  } catch (...) {
    return failed->end(detail::current_failure(), launch, connection.communicator.get());
  }
}

}  // namespace

int run(int argc, char** argv, const std::function<void(Context&)>& body) {
  return run_rank(argc, argv, Program{}, {}, body);
}

int run(int argc, char** argv, const Program& program, const std::function<void(Context&)>& body) {
  return run_rank(argc, argv, program, {}, body);
}

int run(int argc, char** argv, const Program& program, Connection connection,
        const std::function<void(Context&)>& body) {
  return run_rank(argc, argv, program, std::move(connection), body);
}

}  // namespace libtrain
