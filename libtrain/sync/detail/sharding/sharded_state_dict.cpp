// The whole state of a sharded optimizer, for checkpoints: gathered parameter by parameter, and distributed from rank
// 0.

#include <algorithm>
#include <map>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/detail/sharding/sharded_optimizer_state.hpp>

namespace libtrain {

using detail::ShardedBucket;

bool ShardedOptimizer::State::has_state(const ShardedBucket& bucket) const {
  return std::any_of(bucket.members().begin(), bucket.members().end(),
                     [this](const auto& member) { return parameters[member.parameter].steps > 0; });
}

// Neighbours in the order of registration are on one rank.
std::vector<int> ShardedOptimizer::State::evenly_over_ranks() const {
  std::int64_t elements = 0;
  for (const auto& parameter : parameters) elements += parameter.tensor.numel();
  const auto ranks = format->communicator().world_size();
  std::vector<int> rank_of;
  std::int64_t before = 0;
  for (const auto& parameter : parameters) {
    rank_of.push_back(elements == before ? ranks - 1 : static_cast<int>(before * ranks / elements));
    before += parameter.tensor.numel();
  }
  return rank_of;
}

ShardedOptimizer::StateDict ShardedOptimizer::State::gather_state(const std::vector<int>& rank_of) {
  auto& communicator = format->communicator();
  std::vector<std::vector<at::Tensor>> found(parameters.size());
  for (const auto& bucket : buckets) {
    if (!has_state(bucket)) continue;
    for (std::size_t state = 0; state < state_names.size(); ++state) {
      const auto whole = bucket.gather_state(state, communicator);
      for (const auto& member : bucket.members()) {
        if (rank_of[member.parameter] != communicator.rank()) continue;
        found[member.parameter].push_back(ShardedBucket::view_of(whole, member).clone(at::MemoryFormat::Contiguous));
      }
    }
  }
  StateDict result;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto& parameter = parameters[index];
    if (parameter.steps == 0 || rank_of[index] != communicator.rank()) continue;
    for (std::size_t state = 0; state < state_names.size(); ++state) {
      result.emplace_back(text(parameter.name, ".", state_names[state]), found[index][state]);
    }
    result.emplace_back(parameter.name + ".step", at::full({}, parameter.steps, at::kLong));
  }
  return result;
}

// Why `given` does not fit; empty if it fits.
std::string ShardedOptimizer::State::misfit_of(const StateDict& given) const {
  std::map<std::string, at::Tensor> left;
  for (const auto& [name, tensor] : given) {
    if (!tensor.defined()) return text("The given state has an undefined tensor for '", name, "'.");
    if (!left.emplace(name, tensor).second) return text("The given state has '", name, "' twice.");
  }
  for (const auto& parameter : parameters) {
    const auto step = left.find(parameter.name + ".step");
    if (step == left.end()) continue;
    const bool is_count = step->second.scalar_type() == at::kLong && step->second.numel() == 1;
    if (!is_count || step->second.item<std::int64_t>() < 1) {
      return text("'", step->first, "' of the given state is not a step count; it must be one int64 of at least 1.");
    }
    left.erase(step);
    for (const auto& state : state_names) {
      const auto name = text(parameter.name, ".", state);
      const auto tensor = left.find(name);
      if (tensor == left.end()) return text("The given state has no '", name, "', which this optimizer keeps.");
      if (tensor->second.sizes() != parameter.tensor.sizes()) {
        return text("'", name, "' of the given state has sizes ", tensor->second.sizes(), ", but the parameter has ",
                    parameter.tensor.sizes(), ". Build the model that the state was saved for.");
      }
      left.erase(tensor);
    }
  }
  if (left.empty()) return {};
  return text("The given state has '", left.begin()->first,
              "', which this optimizer does not use. Give it the state of the same kind of rule, of a module with the "
              "same parameters.");
}

// `given` fits on rank 0, and is ignored on other ranks.
void ShardedOptimizer::State::take_state(const StateDict& given) {
  auto& communicator = format->communicator();
  const bool gives = communicator.rank() == 0;
  std::map<std::string, at::Tensor> tensors;
  if (gives) tensors.insert(given.begin(), given.end());

  const auto steps = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kLong);
  auto* const counts = steps.mutable_data_ptr<std::int64_t>();
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto step = tensors.find(parameters[index].name + ".step");
    if (step != tensors.end()) counts[index] = step->second.item<std::int64_t>();
  }
  communicator.broadcast(steps, 0).wait();
  buckets.clear();  // the former state is not carried over
  for (std::size_t index = 0; index < parameters.size(); ++index) parameters[index].steps = counts[index];
  lay_out();

  for (const auto& parameter : parameters) {
    if (parameter.steps == 0) continue;
    const auto& bucket = buckets[*parameter.bucket];
    for (std::size_t state = 0; state < state_names.size(); ++state) {
      const auto whole = at::empty(parameter.tensor.sizes(), bucket.parameters().options());
      if (gives) whole.copy_(tensors.at(text(parameter.name, ".", state_names[state])));
      communicator.broadcast(whole, 0).wait();
      bucket.set_state(state, bucket.members()[parameter.member], whole);
    }
  }
}

}  // namespace libtrain
