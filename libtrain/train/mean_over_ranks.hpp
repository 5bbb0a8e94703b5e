#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// The mean of the ranks' numbers, such as the loss of an epoch, computed in float64 and with the same bits on every
/// rank. Each rank counts alike: for a mean over samples, of which ranks may have different numbers, use evaluate().
/// All ranks must call it. NaN or infinity on a rank is returned on all.
double mean_over_ranks(double number, Communicator& communicator);

/// The same for each of several numbers. Throws UsageError, on all ranks, if ranks have different counts of them.
std::vector<double> mean_over_ranks(const std::vector<double>& numbers, Communicator& communicator);

/// The same for each element of a tensor of any shape and number type, without its gradient: a float64 tensor of the
/// same shape on the same device. On a GPU the host does not wait for the values. Throws UsageError for an undefined
/// tensor, and as all_reduce if ranks have different numbers of elements.
at::Tensor mean_over_ranks(const at::Tensor& numbers, Communicator& communicator);

}  // namespace libtrain
