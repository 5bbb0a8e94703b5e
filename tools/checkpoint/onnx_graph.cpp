#include <tools/checkpoint/onnx_graph.hpp>

#include <algorithm>
#include <cstddef>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tools/checkpoint/values.hpp>

namespace libtrain::checkpoint_tool {

namespace {

// The first thing of a kind that is wrong, and how many there are.
struct Problem {
  std::string first = {};
  std::size_t count = 0;

  void add(const std::string& name) {
    if (count++ == 0) first = name;
  }
};

}  // namespace

std::string OnnxGraph::add(const std::string& operation, const std::string& name,
                           const std::vector<std::string>& inputs, const std::vector<OnnxAttribute>& attributes) {
  model_.nodes.push_back({.operation = operation, .name = name, .inputs = inputs, .attributes = attributes});
  return name;
}

std::string OnnxGraph::add_weight(const std::string& name, const std::vector<std::int64_t>& shape) {
  model_.weights.push_back({.name = name, .shape = shape});
  return name;
}

std::string described(const TensorInfo& tensor) {
  return text(to_string(tensor.type), " of shape [", join(tensor.shape, ", "), "]");
}

std::string advice_on_names(const std::map<std::string, TensorInfo>& tensors, const std::string& known,
                            const std::string& advice) {
  const auto is_longer = [&](const auto& entry) { return entry.first.ends_with('.' + known); };
  const auto found = std::ranges::find_if(tensors, is_longer);
  if (found == tensors.end()) return advice;
  return text("Its names seem to begin with '", found->first.substr(0, found->first.size() - known.size()),
              "': give it as --prefix.");
}

void require_weights(const OnnxModel& model, const std::map<std::string, TensorInfo>& tensors,
                     const std::set<std::string>& unused, const std::string& fact, const std::string& advice) {
  Problem missing;
  Problem unexpected;
  Problem different;
  std::set<std::string> known = unused;
  for (const auto& weight : model.weights) {
    known.insert(weight.name);
    const auto found = tensors.find(weight.name);
    if (found == tensors.end()) {
      missing.add(text("'", weight.name, "' is missing"));
    } else if (const auto& tensor = found->second; tensor.shape != weight.shape) {
      different.add(text("'", weight.name, "' is ", described(tensor), " instead of [", join(weight.shape, ", "), "]"));
    } else if (!has_fractions(tensor.type) || is_complex(tensor.type)) {
      different.add(text("'", weight.name, "' is ", described(tensor), " instead of F32, F16, BF16 or F64"));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!known.contains(name)) unexpected.add(text("'", name, "' is unexpected"));
  }
  std::vector<std::string> problems;
  for (const auto& problem : {missing, unexpected, different}) {
    if (problem.count == 0) continue;
    problems.push_back(problem.first + (problem.count > 1 ? text(" (and ", problem.count - 1, " more)") : ""));
  }
  if (!problems.empty()) throw UsageError(text(fact, ": ", join(problems, ", "), ". ", advice));
}

}  // namespace libtrain::checkpoint_tool
