// A small training run that misbehaves as told, for faults_test.py:
//
//   mpirun -n 2 fault_program --fault throw --at-rank 1 --at-step 5
//
// "throw-with-part" also throws, in a program that owns a communicator of its own, on which its peers wait.
//
// Faults before the first step: shape, name, count, dtype (the rank's model is another one than its peers'), and
// return-early. Faults after the last one: change-weight and nan-summary. The others happen in the step --at-step,
// after the forward pass.
//
// "draw" is no fault: every rank draws random numbers, and rank 0 prints them in rank order, for seeds_test.py.

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/replica_check.hpp>
#include <libtrain/train/run.hpp>

namespace lt = libtrain;

namespace {

constexpr int kInputs = 8;
constexpr auto kStepTime = std::chrono::milliseconds(5);

struct Network : torch::nn::Module {
  explicit Network(const std::string& fault)
      : hidden(register_module("hidden", torch::nn::Linear(kInputs, fault == "shape" ? 17 : 16))),
        head(register_module(fault == "name" ? "output" : "head", torch::nn::Linear(fault == "shape" ? 17 : 16, 3))) {
    if (fault == "count") register_module("extra", torch::nn::Linear(1, 1));
    if (fault == "dtype") to(torch::kDouble);
  }

  torch::Tensor forward(const torch::Tensor& inputs) { return head(torch::relu(hidden(inputs))); }

  torch::nn::Linear hidden;
  torch::nn::Linear head;
};

// Tells the test when the fault happened (by the file's time) and in which process.
void note_fault(const lt::Context& context) {
  if (context.rank() != context.integer("at-rank")) return;
  std::ofstream{context.option("note")} << context.rank() << ' ' << getpid() << '\n';
}

void draw(lt::Context& context) {
  std::ostringstream drawn;
  for (int i = 0; i < 3; ++i) drawn << ' ' << std::hexfloat << torch::rand({1}).item<float>();
  for (const auto& numbers : context.communicator().all_gather_bytes(drawn.str())) {
    if (context.rank() == 0) std::cout << "drew" << numbers << '\n';
  }
}

[[noreturn]] void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

void happen(const std::string& fault, lt::Context& context, const torch::Tensor& loss) {
  if (fault == "throw" || fault == "throw-with-part" || fault == "throw-everywhere")
    throw std::runtime_error("The disk caught fire.");
  if (fault == "kill") std::raise(SIGKILL);
  if (fault == "exit") std::_Exit(0);
  if (fault == "stop") std::raise(SIGSTOP);
  if (fault == "hang-before") hang();
  if (fault == "different-collective") context.communicator().all_reduce(torch::ones({2}, context.device())).wait();
  if (fault == "double-backward") loss.backward({}, true);
}

void train(lt::Context& context) {
  const auto fault = context.option("fault");
  if (fault == "draw") return draw(context);
  const bool everywhere = fault == "throw-everywhere";
  const auto fault_here = everywhere || context.rank() == context.integer("at-rank") ? fault : "none";
  const auto faulty_step = context.integer("at-step");
  const auto before_steps =
      fault_here == "shape" || fault_here == "name" || fault_here == "count" || fault_here == "dtype";
  if (before_steps || fault_here == "return-early") note_fault(context);
  if (fault_here == "return-early") return;

  Network model{fault_here};
  model.to(context.device());
  lt::GradientSynchronizer synchronizer{model, context.communicator()};
  torch::optim::SGD sgd{model.parameters(), torch::optim::SGDOptions(0.01)};
  std::shared_ptr<lt::Communicator> part;
  if (fault == "throw-with-part") part = context.communicator().split(0, context.rank());
  for (std::int64_t step = 0; step < context.integer("steps"); ++step) {
    const auto inputs = torch::randn({4, kInputs}, context.device());
    const bool now = fault_here != "none" && step == faulty_step;
    if (now) note_fault(context);
    if (now && fault_here == "return") return;
    const bool unused = now && fault_here == "missing-parameter";
    const auto loss = unused ? model.head->weight.square().sum() : model.forward(inputs).square().mean();
    if (now) happen(fault_here, context, loss);
    if (part) part->all_reduce(torch::ones({2}, context.device())).wait();
    loss.backward();
    synchronizer.wait();
    sgd.step();
    synchronizer.zero_grad();
    context.metrics().write(lt::Record{"step"}.set("step", step).set("loss", loss.item<double>()));
    std::this_thread::sleep_for(kStepTime);
  }
  if (fault_here == "change-weight" || fault_here == "nan-summary") note_fault(context);
  if (fault_here == "change-weight") {
    const torch::NoGradGuard no_grad;
    model.head->bias[1] += 1;
  }
  lt::check_replicas(model, context.communicator());
  context.summary().set("result", fault_here == "nan-summary" ? std::nan("") : 1.0);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Trains on random numbers and fails on demand.",
                  .options = {{"fault",
                               "none, throw, throw-everywhere, kill, exit, stop, hang-before, return, return-early, "
                               "shape, name, count, dtype, change-weight, nan-summary, "
                               "missing-parameter, different-collective, double-backward or draw",
                               "none"},
                              {"at-rank", "The rank that misbehaves", "1"},
                              {"at-step", "The step in which it does", "5"},
                              {"steps", "Length of the run", "20"},
                              {"note", "File that the faulty rank writes as its last deed", "/dev/null"}}},
                 train);
}
