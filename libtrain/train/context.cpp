#include <libtrain/train/context.hpp>

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>
#include <libtrain/comm/detail/nccl/nccl_version.hpp>
#include <libtrain/train/detail/command_line.hpp>
#include <libtrain/train/same_data.hpp>

namespace libtrain {

namespace {

// Which GPU and which software: what explains a difference between two runs.
Record gpu_record(const c10::Device& device) {
  const auto& visible = detail::visible_gpus();
  Record record{"gpu"};
  if (static_cast<std::size_t>(device.index()) < visible.gpus.size()) {
    const auto& gpu = visible.gpus[static_cast<std::size_t>(device.index())];
    record.set("name", gpu.name).set("uuid", gpu.uuid);
  }
  record.set("driver", detail::kernel_driver_version())
      .set("driver_cuda", visible.cuda)
      .set("cuda", at::Context::versionCUDART())
      .set("nccl", detail::nccl_versions().loaded);
  return record;
}

}  // namespace

Context::Context(Connection connection, RunOptions options, Launch launch, std::string run_id, TraceSink* trace)
    : launch_(std::move(launch)),
      options_(std::move(options)),
      output_directory_(options_.output),
      communicator_(std::move(connection.communicator)),
      run_id_(std::move(run_id)),
      device_(connection.device),
      summary_("summary"),
      progress_({.output = rank() == 0 && !options_.quiet ? Progress::Output::automatic : Progress::Output::quiet}),
      trace_(trace) {
  summary_.set("ranks", world_size());
}

data::RankShard Context::shard() const {
  data::RankShard shard{
      {.rank = rank(), .world_size = world_size(), .seed = seed()}, device_, output_directory_, run_id_};
  if (world_size() > 1) {
    shard.require_same = [communicator = communicator_](const data::DatasetIdentity& identity) {
      require_same_data(identity, *communicator);
    };
  }
  return shard;
}

std::shared_ptr<const data::Storage> Context::storage(std::string_view name) {
  has_opened_storage_ = true;
  return detail::open_data(option(name), options_.data, *communicator_,
                           [this](const std::string& progress) { progress_.print(progress); });
}

MetricsWriter& Context::metrics(MetricsWriter::InUse in_use) {
  if (metrics_) return *metrics_;
  metrics_ = rank() == 0 ? MetricsWriter{output_directory_, run_id_, in_use} : MetricsWriter::disabled();
  const auto& build = build_info();
  const auto members = [](const std::map<std::string, std::string>& options) {
    return std::vector<std::pair<std::string, std::string>>(options.begin(), options.end());
  };
  Record record{"run"};
  record.set("config", members(options_.options))
      .set("common_options", members(options_.common))
      .set("seed", options_.seed)
      .set("world_size", world_size())
      .set("launcher", to_string(launch_.launcher))
      .set("host", detail::host_name())
      .set("process", getpid())
      .set("backend", communicator_->backend())
      .set("device", device_.str())
      .set("threads", at::get_num_threads())
      .set("libtrain", build.version)
      .set("torch", build.torch)
      .set("git_revision", build.git_revision);
  if (device_.is_cuda()) record.set("gpu", gpu_record(device_));
  metrics_->write(record);
  return *metrics_;
}

const std::string& Context::resume() {
  has_read_resume_ = true;
  return options_.resume;
}

const std::string& Context::checkpoint_store() {
  has_read_store_ = true;
  return options_.checkpoint_store;
}

const StopRequest& Context::stop_request() {
  has_read_stop_ = true;
  if (!stop_request_) stop_request_.emplace(options_.stop_at);
  return *stop_request_;
}

std::vector<std::string> Context::unused_run_options() const {
  std::vector<std::string> unused;
  if (options_.resume != RunOptions{}.resume && !has_read_resume_) unused.emplace_back("--resume");
  if (!options_.checkpoint_store.empty() && !has_read_store_) unused.emplace_back("--checkpoint-store");
  if (!options_.stop_at.is_never() && !has_read_stop_) unused.emplace_back("--max-minutes");
  return unused;
}

std::uint64_t Context::seed() const {
  return options_.seed;
}

std::map<std::string, std::string> Context::fixed_options() const {
  auto fixed = options_.options;
  for (const auto& name : options_.may_change) fixed.erase(name);
  fixed.emplace("seed", text(options_.seed));
  return fixed;
}

std::string Context::option(std::string_view name) const {
  {
    const std::lock_guard lock(asked_mutex_);
    asked_.emplace(name);
  }
  const auto found = options_.options.find(std::string{name});
  if (found == options_.options.end()) {
    throw UsageError(text("Option --", name, " is required. Give it a value on the command line or in --config FILE."));
  }
  return found->second;
}

std::vector<std::string> Context::unused_options() const {
  std::vector<std::string> unused;
  for (const auto& [name, value] : options_.options) {
    if (!options_.declared && !asked_.contains(name)) unused.push_back(name);
  }
  return unused;
}

std::int64_t Context::integer(std::string_view name, std::int64_t minimum, std::int64_t maximum) const {
  const auto value = option(name);
  const auto number = parse_integer(value, minimum, maximum);
  if (!number) {
    throw UsageError(
        text("Option --", name, " is '", value, "', which is not a whole number from ", minimum, " to ", maximum, "."));
  }
  return *number;
}

double Context::number(std::string_view name, double minimum, double maximum) const {
  const auto value = option(name);
  const auto number = detail::parse_decimal<double>(value, minimum, maximum);
  if (!number) {
    throw UsageError(
        text("Option --", name, " is '", value, "', which is not ", detail::number_between(minimum, maximum), "."));
  }
  return *number;
}

std::string Context::choice(std::string_view name, const std::vector<std::string>& words) const {
  auto word = option(name);
  if (std::ranges::find(words, word) != words.end()) return word;
  throw UsageError(text("Option --", name, " is '", word, "'. Choose one of ", join(words, ", "), "."));
}

bool Context::flag(std::string_view name) const {
  const auto value = option(name);
  if (value == "true" || value == "false") return value == "true";
  throw UsageError(text("Option --", name, " is '", value, "', which is not true or false."));
}

}  // namespace libtrain
