#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/detail/staged/staging_buffer.hpp>
#include <libtrain/comm/detail/staged/stream_mark.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// What one collective of the host does for one on a device. All tensors are one-dimensional.
struct StagedPiece {
  at::Tensor input;          ///< on the device; undefined where this rank brings nothing
  at::Tensor staged_input;   ///< where the host reads that
  at::Tensor staged_output;  ///< where the host leaves the result
  at::Tensor output;         ///< where the result belongs on the device; undefined where this rank gets nothing
  Work work = {};
};

using StagingBuffers = std::vector<std::shared_ptr<StagingBuffer>>;

/// Collectives of the host whose results have still to be copied to the device. Each copy is made once, in the order
/// of the pieces, in the current stream of the thread that finds that the host is done with the piece: a thread that
/// waits, or one that asks. Each of these streams goes on after the one before it, and the first after the call.
class StagedOperation : public Pending {
 public:
  /// `buffers` are where the pieces are staged, `output` is what they write, all of it, undefined where they write
  /// nothing, and `called` is the place in the caller's stream after which that may be done.
  StagedOperation(const at::Device& device, std::vector<StagedPiece> pieces, StagingBuffers buffers,
                  const at::Tensor& output, std::shared_ptr<const StreamMark> called);

  /// Makes the current stream wait for the result, once the host is done with all of it.
  void wait() override;

  /// Copies what the host is done with. True when all of it has arrived, for every stream.
  bool done() override;

  /// Whether the copies touch memory of `tensor`.
  bool writes(const at::Tensor& tensor) const;

 private:
  void bring_back(std::size_t end);
  void copy_to_device(std::size_t end);

  at::Device device_;
  const void* begin_ = nullptr;
  const void* end_ = nullptr;
  std::mutex mutex_;
  std::vector<StagedPiece> pieces_;  // emptied when all have been copied or one has failed
  std::size_t copied_ = 0;
  StagingBuffers buffers_;
  std::shared_ptr<const StreamMark> last_;  // the call at first, then the last copy
  std::exception_ptr failure_;
};

}  // namespace libtrain::detail
