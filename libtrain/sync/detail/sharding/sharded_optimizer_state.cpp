// The layout: which parameter, and which rank's part of its state, is in which bucket.

#include <libtrain/sync/detail/sharding/sharded_optimizer_state.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty_like.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/detail/sharding/update_rule.hpp>

namespace libtrain {

using detail::ShardedBucket;
using detail::ShardLayout;
using detail::ShardMember;

ShardedOptimizer::State::State(const torch::nn::Module& module, const ShardedRule& rule,
                               ShardedOptimizerOptions the_options)
    : options(std::move(the_options)) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::string rules;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;  // shared by two modules
    indices.emplace(item.key(), parameters.size());
    parameters.push_back({.name = item.key(),
                          .tensor = item.value(),
                          .rule = options.rule_of ? options.rule_of(item.key(), rule) : rule});
    const auto& own_rule = parameters.back().rule;
    detail::require_rule(own_rule, rule, item.key());
    rules += detail::describe(own_rule) + "\n";
    // If some parameters have momentum, all get memory for it.
    if (auto names = detail::state_names(own_rule); names.size() > state_names.size()) state_names = std::move(names);
  }
  const auto digest = std::hash<std::string>{}(rules);
  format = std::make_shared<detail::ShardedWireFormat>(
      text(detail::describe(rule), options.rule_of ? text(", and by parameters ", digest) : ""));
}

std::size_t ShardedOptimizer::State::index_of(const std::string& name) const {
  if (const auto found = indices.find(name); found != indices.end()) return found->second;
  throw UsageError(text("ShardedOptimizer does not have parameter '", name,
                        "', which its synchronizer reduces. Give its wire format to the synchronizer of the same "
                        "module."));
}

bool ShardedOptimizer::State::is_planned(const Parameter& parameter) const {
  return parameter.bucket && *parameter.bucket < format->buckets().size();
}

void ShardedOptimizer::State::prepare() {
  format->communicator();
  wait_for_parameters();
  format->require_right_rounds();
  if (!is_laid_out()) lay_out();
}

bool ShardedOptimizer::State::is_laid_out() const {
  const auto has_place = [this](const Parameter& parameter) {
    return is_planned(parameter) || !parameter.has_gradient() ||
           parameter.tensor.grad().is_same(parameter.copied_gradient);
  };
  return plans == format->plans() && std::all_of(parameters.begin(), parameters.end(), has_place);
}

void ShardedOptimizer::State::lay_out() {
  auto former = std::exchange(buckets, {});
  shards.clear();
  for (auto& bucket : former) bucket.release();
  for (auto& parameter : parameters) {
    parameter.bucket.reset();
    parameter.copied_gradient.reset();
  }
  for (const auto& scattered : format->buckets()) {
    add_bucket(members_of(scattered->view()), scattered->layout(), scattered->view().flat.scalar_type());
  }
  add_unplanned();
  carry_over(former);
  plans = format->plans();
}

std::vector<ShardMember> ShardedOptimizer::State::members_of(const BucketView& view) const {
  std::vector<ShardMember> members;
  for (std::size_t index = 0; index < view.names.size(); ++index) {
    const auto& gradient = view.gradients[index];
    members.push_back({.parameter = index_of(view.names[index]),
                       .offset = gradient.storage_offset() - view.flat.storage_offset(),
                       .elements = gradient.numel(),
                       .sizes = gradient.sizes().vec(),
                       .strides = gradient.strides().vec()});
  }
  return members;
}

std::vector<ShardMember> ShardedOptimizer::State::members_of(const std::vector<std::size_t>& chosen) const {
  std::vector<ShardMember> members;
  std::int64_t offset = 0;
  for (const auto index : chosen) {
    const auto dense = at::empty_like(parameters[index].tensor);
    members.push_back({.parameter = index,
                       .offset = offset,
                       .elements = dense.numel(),
                       .sizes = dense.sizes().vec(),
                       .strides = dense.strides().vec()});
    offset += dense.numel();
  }
  return members;
}

void ShardedOptimizer::State::add_bucket(std::vector<ShardMember> members, const ShardLayout& layout,
                                         at::ScalarType type) {
  const auto label = text("parameters of bucket ", buckets.size(), " ('", parameters[members.front().parameter].name,
                          "' to '", parameters[members.back().parameter].name, "')");
  buckets.emplace_back(std::move(members), layout, type, state_names.size(), label, format->communicator());
  const auto& bucket = buckets.back();
  for (std::size_t member = 0; member < bucket.members().size(); ++member) {
    auto& parameter = parameters[bucket.members()[member].parameter];
    parameter.bucket = buckets.size() - 1;
    parameter.member = member;
    bucket.bind(bucket.members()[member], parameter.tensor);
  }
}

void ShardedOptimizer::State::add_unplanned() {
  const auto& communicator = format->communicator();
  std::map<std::pair<at::ScalarType, bool>, std::vector<std::size_t>> groups;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto& parameter = parameters[index];
    if (parameter.bucket || (parameter.steps == 0 && !parameter.has_gradient())) continue;
    detail::require_shardable(parameter.name, parameter.tensor.scalar_type());
    groups[{parameter.tensor.scalar_type(), parameter.has_gradient()}].push_back(index);
  }
  for (const auto& [key, chosen] : groups) {
    auto members = members_of(chosen);
    const auto elements = members.back().offset + members.back().elements;
    const ShardLayout layout{elements, communicator.rank(), communicator.world_size()};
    add_bucket(std::move(members), layout, key.first);
    if (key.second) copy_gradients(buckets.back());
  }
}

// These gradients are averages on every rank, in separate tensors.
void ShardedOptimizer::State::copy_gradients(ShardedBucket& bucket) {
  bucket.make_own_gradients();
  for (const auto& member : bucket.members()) {
    auto& parameter = parameters[member.parameter];
    parameter.copied_gradient = parameter.tensor.grad();
    ShardedBucket::view_of(bucket.own_gradients(), member).copy_(parameter.copied_gradient);
  }
}

// Elements change owners. Whole buckets are sent, one after the other: this is rare, and a rank needs memory for one of
// them.
void ShardedOptimizer::State::carry_over(const std::vector<ShardedBucket>& former) {
  for (const auto& bucket : former) {
    if (!has_state(bucket)) continue;
    for (std::size_t state = 0; state < state_names.size(); ++state) {
      const auto whole = bucket.gather_state(state, format->communicator());
      for (const auto& member : bucket.members()) {
        const auto& parameter = parameters[member.parameter];
        if (parameter.steps == 0) continue;
        const auto& home = buckets[*parameter.bucket];
        home.set_state(state, home.members()[parameter.member], ShardedBucket::view_of(whole, member));
      }
    }
  }
}

}  // namespace libtrain
