#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/collective_record.hpp>
#include <libtrain/comm/work.hpp>
#include <libtrain/numeric/data_type.hpp>

namespace libtrain {

struct CommunicatorOptions {
  /// Bound of every wait, counted from the call of the collective.
  std::chrono::milliseconds timeout = std::chrono::seconds(300);
};

/// What one call may decide for itself.
struct CallOptions {
  /// Bound of this call instead of the communicator's. It may differ between ranks: the shortest ends this call, or the
  /// next, for all. Between hosts, a host whose first rank does not come ends at its own ranks' deadlines.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// A group of ranks that hold the same kind of tensors and call the same collectives in the same order.
///
/// Collectives are asynchronous: they return at once and run in the order of the calls. A tensor given to one must not
/// be read or written until its Work has been waited for: `communicator.all_reduce(tensor).wait()`. Tensors must be
/// dense and contiguous, of a DataType, on a device for which `supports` is true; empty ones are allowed. One thread at
/// a time may call a communicator's methods, `abort` excepted.
///
/// Every call throws UsageError for arguments that no rank could use, and CommunicationError for the first failure this
/// communicator has met, also in all later calls. No global state: any number of communicators may exist.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;  // a group has one handle; share it by pointer
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// "single", "threads", "mpi", ...
  virtual std::string_view backend() const = 0;

  /// Whether collectives take tensors on this device.
  virtual bool supports(const at::Device& device) const = 0;

  /// Afterwards every rank's `output` holds the combination of all ranks' `input`, with the same bits on every rank.
  /// The two have the same number of elements and dtype; they are the same tensor (in place), or do not overlap. fp16
  /// and bf16 accumulate in fp32 on the host; on GPUs NCCL rounds at every hop.
  virtual Work all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                          const CallOptions& options = {}) = 0;

  /// In place.
  Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum, const CallOptions& options = {}) {
    return all_reduce(tensor, tensor, op, options);
  }

  /// As all_reduce, for `root` alone: the others' `output` is not looked at and may be undefined, or, where it is their
  /// `input`, keeps its values.
  virtual Work reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                      const CallOptions& options = {}) = 0;

  /// In place.
  Work reduce(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum, const CallOptions& options = {}) {
    return reduce(tensor, tensor, root, op, options);
  }

  /// Afterwards every rank's `tensor` equals `root`'s.
  virtual Work broadcast(const at::Tensor& tensor, int root, const CallOptions& options = {}) = 0;

  /// `output` has world_size times the elements of `input` and the same dtype: the inputs in rank order. `input` may be
  /// the rank-th part of `output`; otherwise the two must not overlap.
  virtual Work all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options = {}) = 0;

  /// `input` has world_size times the elements of `output` and the same dtype: `output` becomes the rank-th part of the
  /// combination of all inputs. `output` may be the rank-th part of `input`, whose rest keeps its values; otherwise the
  /// two must not overlap.
  virtual Work reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op = ReduceOp::sum,
                              const CallOptions& options = {}) = 0;

  /// Both have the same number of elements, a multiple of the world size, and dtype: the r-th part of `input` goes to
  /// rank r, whose `output` holds the parts in the order of the ranks they came from. They must not overlap.
  virtual Work all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options = {}) = 0;

  /// Returns when all ranks have called it.
  virtual void barrier(const CallOptions& options = {}) = 0;

  /// Control messages, any length, also different ones: element r of the result is what rank r gave.
  virtual std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& options = {}) = 0;

  /// What `root` gave, on every rank.
  virtual std::string broadcast_bytes(const std::string& bytes, int root, const CallOptions& options = {}) = 0;

  /// A communicator among the ranks that gave the same `color` (0 or more), ranked by (key, rank). All ranks must call
  /// it. Its messages call the ranks by their numbers in it.
  virtual std::shared_ptr<Communicator> split(int color, int key, const CallOptions& options = {}) = 0;

  /// Zero-filled one-dimensional memory in which this backend's collectives are fastest. Any thread.
  virtual at::Tensor allocate(std::int64_t elements, at::ScalarType type) = 0;

  /// What the following calls are for, such as "bucket 3": errors and records then say so, and ranks that call the same
  /// for different purposes learn it as they do for different calls. Null: nothing in particular. Returns what the
  /// calls were for until now. See CallPurpose.
  virtual std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> /*label*/) { return {}; }

  /// The last 100 collectives, oldest first, to see where this rank is or was. Empty where the backend keeps none. Any
  /// thread.
  virtual std::vector<CollectiveRecord> recent_collectives() const { return {}; }

  /// Ends all pending and later calls of this rank, and of its peers where the backend can, with `reason`. In a job
  /// that MPI connects, which cannot interrupt a peer's call, it ends the whole job with `code` as its exit code, also
  /// where the ranks of a host talk through shared memory. Any thread.
  virtual void abort(const std::string& reason, ExitCode code = ExitCode::communication) noexcept = 0;
};

/// While it lives, the communicator's calls are for this purpose, unless they had one before: the outermost says most.
/// For control messages above all, which look alike whatever they are for.
///
///     const CallPurpose purpose{communicator, "making a GradientSynchronizer"};
///
/// gives "rank 0 called all_gather_bytes for making a GradientSynchronizer; rank 1 called ..." where ranks disagree.
class [[nodiscard]] CallPurpose {
 public:
  CallPurpose(Communicator& communicator, std::shared_ptr<const std::string> purpose)
      : communicator_(communicator), former_(communicator.label_calls(std::move(purpose))) {
    if (former_) communicator_.label_calls(former_);
  }
  CallPurpose(Communicator& communicator, std::string_view purpose)
      : CallPurpose(communicator, std::make_shared<const std::string>(purpose)) {}
  ~CallPurpose() { communicator_.label_calls(former_); }
  CallPurpose(const CallPurpose&) = delete;  // one purpose, one scope
  CallPurpose& operator=(const CallPurpose&) = delete;

 private:
  Communicator& communicator_;
  std::shared_ptr<const std::string> former_;
};

}  // namespace libtrain
