#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/detail/device/stream_mark.hpp>
#include <libtrain/comm/detail/staged/staging_buffer.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// One collective on the host that is a part of a collective on a device. All tensors are one-dimensional.
struct StagedPiece {
  at::Tensor input;          ///< on the device; undefined if this rank has no input
  at::Tensor staged_input;   ///< its copy on the host
  at::Tensor staged_output;  ///< the result on the host
  at::Tensor output;         ///< the result on the device; undefined if this rank has no output
  Work work = {};
};

using StagingBuffers = std::vector<std::shared_ptr<StagingBuffer>>;

/// Collectives on the host whose results must still be copied to the device. Each copy is made once, in the order of
/// the pieces, in the current stream of the thread that finds that the host has finished the piece: a thread that calls
/// wait() or done(). Each of these streams waits for the one before it, and the first for the stream of the call.
class StagedOperation : public Pending {
 public:
  /// `buffers` contain the staged pieces, `output` is all memory that the pieces write, undefined if they write
  /// nothing, and `called` is the position in the caller's stream after which they may write it.
  StagedOperation(const at::Device& device, std::vector<StagedPiece> pieces, StagingBuffers buffers,
                  const at::Tensor& output, std::shared_ptr<const StreamMark> called);

  /// Waits until the host has finished all pieces, then makes the current stream wait for the result.
  void wait() override;

  /// Copies the pieces that the host has finished. Returns true when all copies have finished, for every stream.
  bool done() override;

  /// From the first piece to the last on the host, without the copies to the device. std::nullopt until all copies have
  /// been made.
  std::optional<WorkTimes> times() override;

  /// Whether the copies write to memory of `tensor`.
  bool writes(const at::Tensor& tensor) const;

 private:
  void bring_back(std::size_t end);
  void copy_to_device(std::size_t end);

  at::Device device_;
  const void* begin_ = nullptr;
  const void* end_ = nullptr;
  std::mutex mutex_;
  std::vector<StagedPiece> pieces_;  // empty after all have been copied or one has failed
  std::size_t copied_ = 0;
  StagingBuffers buffers_;
  std::shared_ptr<const StreamMark> last_;  // the call at first, then the last copy
  std::exception_ptr failure_;
  std::optional<WorkTimes> times_;  // of the pieces that have been copied
};

}  // namespace libtrain::detail
