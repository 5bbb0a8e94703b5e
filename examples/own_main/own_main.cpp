// A program with its own main() that connects the ranks without lt::run, for example a simulation that trains in
// between:
//
//   mpirun -n 2 own_main examples/digits/data
//
// Such a program does what lt::run would do: logging, threads, seeds, and ending the job if a rank fails.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <torch/utils.h>

#include <libtrain/libtrain.hpp>

namespace lt = libtrain;

namespace {

constexpr std::uint64_t kSeed = 1;

void train(const std::string& folder, lt::Communicator& communicator) {
  const lt::data::IdxImages images{folder, lt::data::IdxSplit::train, {.classes = 10}};
  lt::data::DataLoader loader{
      images,
      {.batch_size = 32},
      lt::data::Shard{.rank = communicator.rank(), .world_size = communicator.world_size(), .seed = kSeed}};
  torch::nn::Sequential model{torch::nn::Flatten(),
                              torch::nn::Linear(images.height() * images.width(), images.classes())};
  lt::GradientSynchronizer synchronizer{*model, communicator};
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(0.5)};
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    torch::Tensor loss;
    for (auto& batch : loader.epoch(epoch)) {
      loss = torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
      loss.backward();
      synchronizer.wait();
      sgd.step();
      synchronizer.zero_grad();
    }
    lt::log_info("epoch " + std::to_string(epoch + 1) + ": loss " + std::to_string(loss.item<double>()));
  }
  lt::check_replicas(*model, communicator);
  lt::require_finite(*model);
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<lt::Launch> launch;
  std::shared_ptr<lt::Communicator> communicator;
  try {
    if (argc != 2) throw lt::UsageError("usage: own_main FOLDER, the folder with MNIST's four files.");
    launch = lt::detect_launch(lt::Environment::of_process());
    lt::set_log_identity(launch->rank.value, launch->world_size.value);
    for (const auto& warning : launch->warnings) lt::log_warning(warning);
    // This program trains on the CPU: its tensors are not moved to Connection::device.
    communicator =
        lt::connect(*launch, {.device = lt::DeviceChoice::cpu, .communicator = {.timeout = std::chrono::minutes(5)}})
            .communicator;
    // Otherwise each rank uses all cores.
    torch::set_num_threads(1);
    // The weights become rank 0's; with equal seeds all ranks would have the same dropout masks.
    torch::manual_seed(kSeed + static_cast<std::uint64_t>(communicator->rank()));
    train(argv[1], *communicator);
    // A rank that exits earlier would end the job.
    communicator->barrier();
    return 0;
  } catch (...) {
    // The peers wait for this rank in a collective: after a return they would wait until their timeout.
    return lt::end_failed_job(launch, communicator.get());
  }
}
