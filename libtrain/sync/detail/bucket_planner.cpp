#include <libtrain/sync/detail/bucket_planner.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/detail/bucket_tuning.hpp>

namespace libtrain::detail {

namespace {

std::vector<GradientSpec> specs_of(const std::vector<std::size_t>& order, const ModuleParameters& parameters) {
  std::vector<GradientSpec> specs;
  for (const auto index : order) {
    const auto& parameter = parameters[index];
    specs.push_back({static_cast<std::size_t>(parameter.tensor.numel()), gradient_type(parameter)});
  }
  return specs;
}

// Latency and bandwidth of all-reduces in memory of the communicator, as measured by this rank. Takes tens of
// milliseconds.
LinkCost measure_link(Communicator& communicator) {
  constexpr std::int64_t kSizes[] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22};
  constexpr int kCalls = 7;
  const auto memory = communicator.allocate(*std::max_element(std::begin(kSizes), std::end(kSizes)), at::kFloat);
  std::vector<ReductionTime> times;
  for (const auto elements : kSizes) {
    const auto part = memory.narrow(0, 0, elements);
    double fastest = std::numeric_limits<double>::infinity();
    for (int call = 0; call < kCalls; ++call) {
      communicator.barrier();
      const Stopwatch stopwatch;
      communicator.all_reduce(part, ReduceOp::average).wait();
      fastest = std::min(fastest, stopwatch.seconds());
    }
    times.push_back({.bytes = static_cast<std::size_t>(part.nbytes()), .seconds = fastest});
  }
  return fit_link(times);
}

}  // namespace

BucketPlanner::BucketPlanner(const ModuleParameters& parameters, const SynchronizerOptions& options)
    : parameters_(parameters), options_(options), limits_(options.buckets) {
  if (options.wire_format) limits_.alone_bytes = BucketLimits::kNever;  // formats have their own memory for a bucket
}

void BucketPlanner::check_given() const {
  if (options_.plan.empty()) return;
  std::vector<int> times(parameters_.size());
  for (const auto& names : options_.plan) {
    const ModuleParameter* first = nullptr;
    for (const auto& name : names) {
      const auto index = parameters_.index_of(name);
      ++times[index];
      if (first == nullptr) first = &parameters_[index];
      if (first->tensor.scalar_type() == parameters_[index].tensor.scalar_type()) continue;
      throw UsageError(text("The given plan has '", first->name, "' of dtype ", first->tensor.scalar_type(), " and '",
                            name, "' of dtype ", parameters_[index].tensor.scalar_type(),
                            " in one bucket. Use buckets of one dtype."));
    }
  }
  for (const auto index : parameters_.trainable()) {
    if (times[index] == 1) continue;
    throw UsageError(text("The given plan names parameter '", parameters_[index].name, "' ", times[index],
                          " times. Name each trainable parameter once."));
  }
}

std::vector<Bucket> BucketPlanner::plan() const {
  return options_.plan.empty() ? plan(parameters_.trainable()) : given_plan();
}

std::vector<Bucket> BucketPlanner::plan(const std::vector<std::size_t>& order) const {
  auto buckets = plan_buckets(specs_of(order, parameters_), limits_);
  for (auto& bucket : buckets) {
    for (auto& member : bucket.members) member = order[member];
  }
  return buckets;
}

std::vector<Bucket> BucketPlanner::given_plan() const {
  std::vector<Bucket> buckets;
  auto unnamed = parameters_.trainable();  // they were frozen when the plan was given
  for (const auto& names : options_.plan) {
    Bucket bucket;
    for (const auto& name : names) {
      const auto index = parameters_.index_of(name);
      const auto& parameter = parameters_[index];
      std::erase(unnamed, index);
      if (!parameter.tensor.requires_grad()) continue;
      bucket.type = gradient_type(parameter);
      bucket.bytes += parameter.tensor.nbytes();
      bucket.members.push_back(index);
    }
    if (!bucket.members.empty()) buckets.push_back(std::move(bucket));
  }
  for (auto& bucket : plan(unnamed)) buckets.push_back(std::move(bucket));
  return buckets;
}

std::vector<std::string> BucketPlanner::describe(const std::vector<Bucket>& plan) const {
  std::vector<std::string> lines;
  for (const auto& bucket : plan) {
    std::vector<std::string> names;
    for (const auto index : bucket.members) names.push_back("'" + parameters_[index].name + "'");
    lines.push_back(text("a bucket of ", join(names, ", ")));
  }
  lines.push_back(text("limits of ", limits_.bucket_bytes, ", ", limits_.first_bucket_bytes, " and ",
                       limits_.alone_bytes, " bytes, ", options_.plan.empty() ? "a computed" : "a given",
                       " plan, re-planning ", options_.replan ? "on" : "off"));
  lines.push_back(text("wire format ", options_.wire_format ? options_.wire_format->signature() : "none", ", policies ",
                       static_cast<int>(options_.unused), " ", static_cast<int>(options_.non_finite), " ",
                       static_cast<int>(options_.buffers), " ", static_cast<int>(options_.replicas), " ",
                       static_cast<int>(options_.overlap)));
  return lines;
}

std::optional<std::vector<Bucket>> BucketPlanner::replan_by_arrival(const std::vector<std::size_t>& arrivals,
                                                                    Communicator& communicator) {
  if (!options_.replan || has_replanned_ || !options_.plan.empty()) return {};
  const CallPurpose purpose{communicator, "the order of gradients in the first round"};
  InputText seen_by_rank_0{communicator.broadcast_bytes(join(arrivals, " "), 0)};
  std::vector<std::size_t> order;
  for (std::size_t index = 0; seen_by_rank_0 >> index;) order.push_back(index);
  if (order.empty()) return {};  // rank 0 had no data: retry after the next round
  for (const auto index : parameters_.trainable()) {
    if (std::find(order.begin(), order.end(), index) == order.end()) order.push_back(index);
  }
  has_replanned_ = true;
  return plan(order);
}

std::vector<Bucket> BucketPlanner::tune(Communicator& communicator) {
  if (!options_.plan.empty()) {
    throw UsageError("tune() was called, but SynchronizerOptions::plan is set. Leave it empty.");
  }
  const CallPurpose purpose{communicator, "tune()"};
  const auto link = measure_link(communicator);
  auto order = parameters_.trainable();
  // A parameter without a gradient so far may never get one: it must not delay the others.
  double latest = 0;
  for (const auto index : order) latest = std::max(latest, parameters_[index].ready_s.value_or(0));
  const auto rank_of = [this](std::size_t index) {
    const auto& ready = parameters_[index].ready_s;
    return std::pair{!ready.has_value(), ready.value_or(0)};
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t left, std::size_t right) { return rank_of(left) < rank_of(right); });
  std::vector<double> ready_s;
  for (const auto index : order) ready_s.push_back(parameters_[index].ready_s.value_or(latest));
  const auto mine = choose_limits(specs_of(order, parameters_), ready_s, link, limits_.alone_bytes);
  // All ranks use rank 0's choice, since times differ between ranks.
  InputText chosen{
      communicator.broadcast_bytes(text(mine.bucket_bytes, " ", mine.first_bucket_bytes, " ", join(order, " ")), 0)};
  chosen >> limits_.bucket_bytes >> limits_.first_bucket_bytes;
  for (auto& index : order) chosen >> index;
  has_replanned_ = true;
  return plan(order);
}

}  // namespace libtrain::detail
