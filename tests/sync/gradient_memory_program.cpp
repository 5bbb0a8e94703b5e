// What training adds to a rank's memory, for gradient_memory_test.py:
//
//   gradient_memory_program --synchronized 0             plain LibTorch in one process
//   mpirun -n 2 gradient_memory_program                  the same network on ranks, with a GradientSynchronizer
//
// Rank 0 prints a line of JSON for each rank, in rank order: the bytes of the parameters, and what the process holds
// after the last step, while gradients are there, beyond what it held before the network was made.

#include <malloc.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/record.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/train/run.hpp>

namespace lt = libtrain;

namespace {

// 64 MiB in layers of a little less than 1 MiB each: small, because backward() has one gradient more than there are in
// the end; less than 1 MiB, so that 25 fit into a bucket of 25 MiB, of whose pages of 2 MiB half of one is empty.
constexpr int kLayers = 64;
constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kBatch = 2;
constexpr int kSteps = 5;

/// A line of a file in /proc/self, such as "RssAnon:  1234 kB", and what it is called here.
struct Counter {
  const char* key;
  const char* file;
  const char* name;
};

// Rss counts a page that several processes have mapped in each of them, Pss divides it among them.
constexpr std::array kCounters{
    Counter{.key = "rss_anonymous_bytes", .file = "/proc/self/status", .name = "RssAnon:"},
    Counter{.key = "rss_shared_bytes", .file = "/proc/self/status", .name = "RssShmem:"},
    Counter{.key = "rss_file_bytes", .file = "/proc/self/status", .name = "RssFile:"},
    Counter{.key = "pss_anonymous_bytes", .file = "/proc/self/smaps_rollup", .name = "Pss_Anon:"},
    Counter{.key = "pss_shared_bytes", .file = "/proc/self/smaps_rollup", .name = "Pss_Shmem:"},
};

std::int64_t bytes_of(const Counter& counter) {
  std::ifstream file{counter.file};
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string name;
    std::int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == counter.name) return 1024 * kilobytes;
  }
  throw lt::EnvironmentError(
      lt::text(counter.file, " has no ", counter.name, " This test needs a Linux kernel of 5.4 or later."));
}

// All ranks measure while no rank does anything else: what one has mapped counts on the others.
std::vector<std::int64_t> measure(lt::Communicator& communicator) {
  malloc_trim(0);  // free memory that malloc keeps for later is nobody's
  communicator.barrier();
  std::vector<std::int64_t> result;
  for (const auto& counter : kCounters) result.push_back(bytes_of(counter));
  communicator.barrier();
  return result;
}

std::int64_t parameter_bytes(const torch::nn::Module& module) {
  std::int64_t bytes = 0;
  for (const auto& parameter : module.parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
  return bytes;
}

// Leaves the last step's gradients in the network.
void take_steps(torch::nn::Sequential& network, lt::GradientSynchronizer* synchronizer) {
  torch::optim::SGD sgd{network->parameters(), torch::optim::SGDOptions(0.01)};
  const auto inputs = torch::rand({kBatch, kWidth});
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    network->forward(inputs).square().mean().backward();
    if (synchronizer != nullptr) synchronizer->wait();
    sgd.step();
  }
}

void print(lt::Context& context, const lt::Record& record) {
  for (const auto& line : context.communicator().all_gather_bytes(record.line(0))) {
    if (context.rank() == 0) std::cout << line << std::flush;
  }
}

void train(lt::Context& context) {
  const bool synchronized = context.integer("synchronized", 0, 1) == 1;
  const bool copied = context.integer("second-copy", 0, 1) == 1;
  if (!synchronized && context.world_size() > 1) {
    throw lt::UsageError("--synchronized 0 is for one process: start it without mpirun.");
  }
  const auto before = measure(context.communicator());
  torch::nn::Sequential network;
  for (int layer = 0; layer < kLayers; ++layer) network->push_back(torch::nn::Linear(kWidth, kWidth));
  std::optional<lt::GradientSynchronizer> synchronizer;
  if (synchronized) synchronizer.emplace(*network, context.communicator());
  take_steps(network, synchronizer ? &*synchronizer : nullptr);
  std::vector<at::Tensor> copies;
  for (const auto& parameter : network->parameters()) {
    if (copied) copies.push_back(parameter.grad().clone());
  }
  const auto after = measure(context.communicator());

  lt::Record record{"gradient_memory"};
  record.set("rank", context.rank()).set("parameter_bytes", parameter_bytes(*network));
  for (std::size_t index = 0; index < kCounters.size(); ++index) {
    record.set(kCounters[index].key, after[index] - before[index]);
  }
  print(context, record);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Measures what training adds to a rank's memory.",
       .options = {{"synchronized", "1, or 0 for plain LibTorch in one process", "1"},
                   {"second-copy", "1 keeps a copy of all gradients, which the measurement must show", "0"}}},
      train);
}
