#pragma once

#include <cstddef>
#include <cstdint>

namespace libtrain::data::detail {

/// What a BatchEngine has its workers do. Batches are numbered from 0, a slot is where one is made. For each batch:
/// open() once, fill() once for each sample, by any workers and in any order, then close() once.
class BatchWork {
 public:
  virtual ~BatchWork() = default;

  /// Makes ready what batch number `batch` needs, and returns how many samples it has. One batch at a time, in order.
  virtual std::uint64_t open(std::uint64_t batch, std::size_t slot) = 0;

  /// Puts sample number `sample` of the batch into its place. Called from several threads at once.
  virtual void fill(std::uint64_t batch, std::size_t slot, std::uint64_t sample) = 0;

  /// After the last sample, by the worker that was last.
  virtual void close(std::uint64_t batch, std::size_t slot) = 0;
};

}  // namespace libtrain::data::detail
