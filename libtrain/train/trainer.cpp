#include <libtrain/train/trainer.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/train/detail/number_bytes.hpp>
#include <libtrain/train/detail/training_loop.hpp>

namespace libtrain {

namespace {

// Decisions follow from them, which all ranks must make equally.
std::map<std::string, double> values_of_rank_0(const std::map<std::string, double>& values,
                                               Communicator& communicator) {
  const auto bytes = detail::to_bytes(detail::NamedNumbers{values.begin(), values.end()});
  const auto numbers = detail::named_numbers_of(communicator.broadcast_bytes(bytes, 0));
  return {numbers.begin(), numbers.end()};
}

}  // namespace

Trainer::Trainer(Context& context, TrainerOptions options)
    : loop_(std::make_unique<detail::TrainingLoop>(context, std::move(options))) {}

Trainer::Trainer(Context& context, ModuleRef module, TrainerOptimizer optimizer, TrainerOptions options)
    : Trainer(context, std::move(options)) {
  add("model", module, optimizer);
}

Trainer::~Trainer() = default;

TrainerPart& Trainer::add(const std::string& name, ModuleRef module, TrainerOptimizer optimizer) {
  return loop_->add(name, *module, optimizer);
}

void Trainer::add_state(const std::string& name, std::unique_ptr<Checkpointable> state) {
  loop_->add_state(name, std::move(state));
}

void Trainer::evaluate_with(std::function<std::map<std::string, double>()> evaluate) {
  loop_->add_evaluation({.values = [evaluate = std::move(evaluate), this] {
    return std::optional{values_of_rank_0(evaluate(), communicator())};
  }});
}

void Trainer::evaluate_with(
    std::function<std::optional<std::map<std::string, double>>(const std::function<bool()>& must_stop)> evaluate) {
  loop_->add_evaluation({.values = [evaluate = std::move(evaluate), this] {
    auto values = evaluate([this] { return must_stop_evaluation(); });
    if (values) values = values_of_rank_0(*values, communicator());
    return values;
  }});
}

void Trainer::add_evaluation(std::vector<std::string> names, std::function<std::optional<Evaluation>()> evaluate) {
  auto values_of = [names, evaluate = std::move(evaluate)] {
    std::optional<std::map<std::string, double>> values;
    const auto evaluation = evaluate();
    if (!evaluation) return values;
    if (evaluation->sums.size() != names.size()) {
      throw UsageError(text("An evaluation gives ", evaluation->sums.size(), " values for each sample, and has ",
                            names.size(), " names: ", join(names, ", "), ". Return a column for each name."));
    }
    values.emplace();
    for (std::size_t index = 0; index < names.size(); ++index) values->emplace(names[index], evaluation->mean(index));
    return values;
  };
  loop_->add_evaluation({.names = std::move(names), .values = std::move(values_of)});
}

bool Trainer::must_stop_evaluation() {
  return loop_->must_stop_evaluation();
}

void Trainer::after_step(std::function<void(const TrainingState&)> callback) {
  loop_->after_step(std::move(callback));
}

void Trainer::after_epoch(std::function<void(const TrainingState&)> callback) {
  loop_->after_epoch(std::move(callback));
}

Communicator& Trainer::communicator() {
  return loop_->communicator();
}

void Trainer::fit(detail::TrainerSteps& steps) {
  loop_->fit(steps);
}

std::map<std::string, double> Trainer::evaluate() {
  return loop_->evaluate_only();
}

void Trainer::end_training() {
  loop_->end_training();
}

TrainerPart& Trainer::part(const std::string& name) const {
  return loop_->part(name);
}

const TrainingState& Trainer::state() const {
  return loop_->state();
}

Trackers& Trainer::trackers() {
  return loop_->trackers();
}

std::filesystem::path Trainer::best_checkpoint() const {
  return loop_->best_checkpoint();
}

}  // namespace libtrain
