#include <libtrain/train/mean_over_ranks.hpp>

#include <algorithm>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/train/detail/number_bytes.hpp>

namespace libtrain {

double mean_over_ranks(double number, Communicator& communicator) {
  return mean_over_ranks(std::vector{number}, communicator).front();
}

std::vector<double> mean_over_ranks(const std::vector<double>& numbers, Communicator& communicator) {
  const CallPurpose purpose{communicator, "mean_over_ranks()"};
  const auto of_ranks = communicator.all_gather_bytes(detail::to_bytes(numbers));
  const auto [least, most] = std::ranges::minmax_element(of_ranks, {}, &std::string::size);
  if (least->size() != most->size()) {
    throw UsageError(text("mean_over_ranks() was given a list of length ", least->size() / sizeof(double),
                          " on one rank and of length ", most->size() / sizeof(double),
                          " on another. Give it equally many numbers on every rank."),
                     ErrorScope::all_ranks);
  }
  std::vector<double> means(numbers.size());
  for (const auto& bytes : of_ranks) {  // all ranks add in the same order
    const auto theirs = detail::numbers_of(bytes);
    for (std::size_t index = 0; index < means.size(); ++index) means[index] += theirs[index];
  }
  for (auto& mean : means) mean /= communicator.world_size();
  return means;
}

at::Tensor mean_over_ranks(const at::Tensor& numbers, Communicator& communicator) {
  if (!numbers.defined()) throw UsageError("mean_over_ranks() was given an undefined tensor. Give it a value.");
  const CallPurpose purpose{communicator, "mean_over_ranks()"};
  const auto device = communicator.supports(numbers.device()) ? numbers.device() : communicator.device();
  const auto means =
      numbers.detach().to(device, at::kDouble, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  communicator.all_reduce(means, ReduceOp::average).wait();
  return means.to(numbers.device());
}

}  // namespace libtrain
