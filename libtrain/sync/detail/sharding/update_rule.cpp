#include <libtrain/sync/detail/sharding/update_rule.hpp>

#include <limits>
#include <tuple>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/dense_update.hpp>

namespace libtrain::detail {

namespace {

using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

void require_sgd(const SGDOptions& options) {
  optim::detail::require_not_negative(options.lr(), "SGDOptions::lr");
  optim::detail::require_not_negative(options.momentum(), "SGDOptions::momentum");
  optim::detail::require_not_negative(options.weight_decay(), "SGDOptions::weight_decay");
  if (options.nesterov() && (options.momentum() == 0 || options.dampening() != 0)) {
    throw UsageError(text("SGDOptions::nesterov is set with momentum ", options.momentum(), " and dampening ",
                          options.dampening(), "; it needs a momentum above 0 and no dampening."));
  }
}

void require_adamw(const AdamWOptions& options) {
  optim::detail::require_not_negative(options.lr(), "AdamWOptions::lr");
  optim::detail::require_not_negative(options.eps(), "AdamWOptions::eps");
  optim::detail::require_not_negative(options.weight_decay(), "AdamWOptions::weight_decay");
  const auto [beta1, beta2] = options.betas();
  if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1)) {
    throw UsageError(
        text("AdamWOptions::betas are ", beta1, " and ", beta2, "; both must be at least 0 and less than 1."));
  }
  if (options.amsgrad()) {
    throw UsageError(
        "AdamWOptions::amsgrad is set, which ShardedOptimizer does not support. Leave it out, or use optim::FusedAdamW "
        "on every rank.");
  }
}

at::Tensor part_of(const at::Tensor& flat, std::int64_t begin, const OwnedRun& run) {
  return flat.narrow(0, begin, run.count);
}

// The parts of each run, as operators on lists of tensors take them.
struct RunLists {
  RunLists(const ShardMemory& memory, const std::vector<OwnedRun>& runs) : states(memory.states.size()) {
    for (const auto& run : runs) {
      parameters.push_back(part_of(memory.parameters, run.begin, run));
      gradients.push_back(part_of(memory.gradients, run.begin, run));
      for (std::size_t state = 0; state < states.size(); ++state) {
        states[state].push_back(part_of(memory.states[state], run.in_state, run));
      }
    }
  }

  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<std::vector<at::Tensor>> states;
};

void update_sgd_on_device(const SGDOptions& options, double rate_factor, std::int64_t number, const RunLists& runs) {
  const bool has_momentum = options.momentum() != 0;
  at::_fused_sgd_(runs.parameters, runs.gradients, has_momentum ? at::TensorList{runs.states[0]} : at::TensorList{},
                  options.weight_decay(), options.momentum(), options.lr() * rate_factor, options.dampening(),
                  options.nesterov(), /*maximize=*/false, /*is_first_step=*/number == 1);
}

void update_adamw_on_device(const AdamWOptions& options, double rate_factor, std::int64_t number,
                            const RunLists& runs) {
  const auto step = at::full({}, static_cast<double>(number), runs.parameters.front().options().dtype(at::kFloat));
  const std::vector<at::Tensor> steps(runs.parameters.size(), step);
  at::_fused_adamw_(runs.parameters, runs.gradients, runs.states[0], runs.states[1], {}, steps,
                    options.lr() * rate_factor, std::get<0>(options.betas()), std::get<1>(options.betas()),
                    options.weight_decay(), options.eps(), /*amsgrad=*/false, /*maximize=*/false);
}

void update_sgd(const SGDOptions& options, double rate_factor, std::int64_t number, const ShardMemory& memory,
                const OwnedRun& run) {
  auto step = optim::detail::sgd_step(options);
  step.learning_rate *= rate_factor;
  step.first = number == 1;
  optim::detail::sgd_pieces(
      memory.parameters.narrow(0, run.begin, run.count), memory.gradients.narrow(0, run.begin, run.count),
      step.momentum == 0 ? at::Tensor{} : memory.states[0].narrow(0, run.in_state, run.count), step);
}

void update_adamw(const AdamWOptions& options, double rate_factor, std::int64_t number, const ShardMemory& memory,
                  const OwnedRun& run) {
  auto step = optim::detail::adamw_step(options, number);
  step.learning_rate *= rate_factor;
  optim::detail::adamw_pieces(
      memory.parameters.narrow(0, run.begin, run.count), memory.gradients.narrow(0, run.begin, run.count),
      memory.states[0].narrow(0, run.in_state, run.count), memory.states[1].narrow(0, run.in_state, run.count), step);
}

}  // namespace

void require_rule(const ShardedRule& rule, const ShardedRule& common, const std::string& parameter) {
  if (rule.index() != common.index()) {
    throw UsageError(text("ShardedOptimizerOptions::rule_of has another kind of rule for parameter '", parameter,
                          "' than the common one. Give SGDOptions to all, or AdamWOptions to all."));
  }
  if (const auto* sgd = std::get_if<SGDOptions>(&rule)) return require_sgd(*sgd);
  require_adamw(std::get<AdamWOptions>(rule));
}

std::string describe(const ShardedRule& rule) {
  OutputText stream;
  stream.precision(std::numeric_limits<double>::digits10);
  if (const auto* sgd = std::get_if<SGDOptions>(&rule)) {
    stream << "SGD with lr " << sgd->lr() << ", momentum " << sgd->momentum() << ", dampening " << sgd->dampening()
           << ", weight decay " << sgd->weight_decay() << (sgd->nesterov() ? ", nesterov" : "");
    return stream.str();
  }
  const auto& adamw = std::get<AdamWOptions>(rule);
  stream << "AdamW with lr " << adamw.lr() << ", betas " << std::get<0>(adamw.betas()) << " and "
         << std::get<1>(adamw.betas()) << ", eps " << adamw.eps() << ", weight decay " << adamw.weight_decay();
  return stream.str();
}

std::vector<std::string> state_names(const ShardedRule& rule) {
  const auto* sgd = std::get_if<SGDOptions>(&rule);
  if (sgd == nullptr) return {"exp_avg", "exp_avg_sq"};
  if (sgd->momentum() == 0) return {};
  return {"momentum_buffer"};
}

double learning_rate(const ShardedRule& rule) {
  return std::visit([](const auto& options) { return options.lr(); }, rule);
}

void set_learning_rate(ShardedRule& rule, double rate) {
  std::visit([rate](auto& options) { options.set_lr(rate); }, rule);
}

void update_runs(const ShardedRule& rule, double rate_factor, std::int64_t step, const ShardMemory& memory,
                 const std::vector<OwnedRun>& runs) {
  if (runs.empty()) return;
  const auto* const sgd = std::get_if<SGDOptions>(&rule);
  if (!memory.parameters.is_cpu()) {
    const RunLists lists{memory, runs};
    if (sgd != nullptr) return update_sgd_on_device(*sgd, rate_factor, step, lists);
    return update_adamw_on_device(std::get<AdamWOptions>(rule), rate_factor, step, lists);
  }
  for (const auto& run : runs) {
    if (sgd != nullptr) {
      update_sgd(*sgd, rate_factor, step, memory, run);
    } else {
      update_adamw(std::get<AdamWOptions>(rule), rate_factor, step, memory, run);
    }
  }
}

}  // namespace libtrain::detail
