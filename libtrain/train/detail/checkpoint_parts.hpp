#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <libtrain/checkpoint/checkpoint_file_writer.hpp>
#include <libtrain/train/checkpoint.hpp>

namespace libtrain::detail {

/// What Checkpoint::add() adds; the arguments must outlive it.
std::unique_ptr<Checkpointable> part_of(torch::nn::Module& module);
std::unique_ptr<Checkpointable> part_of(torch::optim::Optimizer& optimizer, const torch::nn::Module& module);
std::unique_ptr<Checkpointable> part_of(ShardedOptimizer& optimizer);
std::unique_ptr<Checkpointable> part_of(optim::MovingAverage& average);
std::unique_ptr<Checkpointable> part_of(optim::LossScaler& scaler);

/// The states of LibTorch's default generators of the CPU and of `device`, if that is another one.
std::vector<at::Tensor> own_generators(const at::Device& device);
void set_own_generators(const at::Device& device, const std::vector<at::Tensor>& states);

/// The states of LibTorch's default generators of all ranks, on every rank: "rank0.cpu", and "rank0.device" on a GPU.
/// All ranks must call it.
optim::NamedTensors gather_generators(Communicator& communicator);

/// Continues this rank's generators from those of gather_generators(). If the number of ranks was another, or the state
/// of this rank's device is not there, they are seeded from rank 0's seed, the step and the rank. Throws UsageError
/// without a state of rank 0.
void restore_generators(const optim::NamedTensors& saved, std::int64_t step, int saved_world_size,
                        Communicator& communicator);

/// Copies in host memory, without gradients.
optim::NamedTensors copied_to_host(const optim::NamedTensors& tensors);

/// The file of a part, or of a rank's share of one, with `tensors`, which are in host memory.
CheckpointPart file_of(std::string name, optim::NamedTensors tensors);

/// Rank 0's tensors on all ranks, on the communicator's device. Others pass none. All ranks must call it.
optim::NamedTensors broadcast_named(optim::NamedTensors tensors, Communicator& communicator);

}  // namespace libtrain::detail
