#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/collective_record.hpp>
#include <libtrain/comm/work.hpp>
#include <libtrain/numeric/data_type.hpp>

namespace libtrain {

struct CommunicatorOptions {
  /// Timeout of every wait, counted from the call of the collective.
  std::chrono::milliseconds timeout = std::chrono::seconds(300);
};

/// Options of one call.
struct CallOptions {
  /// Timeout of this call instead of the communicator's. It may differ between ranks: the shortest timeout ends this
  /// call, or the next one, on all ranks. If the first rank of a host does not arrive, the other ranks of that host end
  /// the call at their own deadlines.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// A group of ranks that hold the same kind of tensors and call the same collectives in the same order.
///
/// Collectives are asynchronous: they return at once and run in the order of the calls. A tensor given to a collective
/// must not be read or written before wait() of its Work returns: `communicator.all_reduce(tensor).wait()`. Tensors
/// must be dense and contiguous, of a DataType, on a device for which `supports` is true; empty tensors are allowed.
/// One thread at a time may call a communicator's methods, except `abort`.
///
/// Every call throws UsageError for invalid arguments, and CommunicationError for the first failure of this
/// communicator, also in all later calls. No global state: any number of communicators may exist.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;  // share it by pointer
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// "single", "threads", "mpi", ...
  virtual std::string_view backend() const = 0;

  /// Whether collectives accept tensors on this device.
  virtual bool supports(const at::Device& device) const = 0;

  /// The device of this rank's model, gradients and batches: that of the memory which `allocate` returns.
  virtual at::Device device() const { return at::kCPU; }

  /// Combines all ranks' `input` into every rank's `output`, with the same bits on every rank. The two have the same
  /// number of elements and dtype; they are the same tensor (in place), or do not overlap. fp16 and bf16 accumulate in
  /// fp32 on the host; on GPUs NCCL rounds at every hop.
  virtual Work all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                          const CallOptions& options = {}) = 0;

  /// In place.
  Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum, const CallOptions& options = {}) {
    return all_reduce(tensor, tensor, op, options);
  }

  /// Like all_reduce, but only `root` gets the result: the other ranks' `output` is not used and may be undefined; if
  /// it is their `input`, it keeps its values.
  virtual Work reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                      const CallOptions& options = {}) = 0;

  /// In place.
  Work reduce(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum, const CallOptions& options = {}) {
    return reduce(tensor, tensor, root, op, options);
  }

  /// Copies `root`'s `tensor` to every rank's `tensor`.
  virtual Work broadcast(const at::Tensor& tensor, int root, const CallOptions& options = {}) = 0;

  /// Concatenates all inputs in rank order. `output` has world_size times the elements of `input` and the same dtype.
  /// `input` may be the rank-th part of `output`; otherwise the two must not overlap.
  virtual Work all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options = {}) = 0;

  /// Combines all inputs and stores the rank-th part in `output`. `input` has world_size times the elements of `output`
  /// and the same dtype. `output` may be the rank-th part of `input`, the rest of which keeps its values; otherwise the
  /// two must not overlap.
  virtual Work reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op = ReduceOp::sum,
                              const CallOptions& options = {}) = 0;

  /// Sends the r-th part of `input` to rank r, whose `output` contains the parts in the order of the sending ranks.
  /// Both have the same dtype and number of elements, a multiple of the world size. They must not overlap.
  virtual Work all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options = {}) = 0;

  /// Returns after all ranks have called it.
  virtual void barrier(const CallOptions& options = {}) = 0;

  /// For control messages of any length, which may differ between ranks: element r of the result is `bytes` of rank r.
  virtual std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& options = {}) = 0;

  /// Returns `bytes` of `root` on every rank.
  virtual std::string broadcast_bytes(const std::string& bytes, int root, const CallOptions& options = {}) = 0;

  /// A communicator of the ranks that passed the same `color` (0 or more), ordered by (key, rank). All ranks must call
  /// it. Its messages use the rank numbers of the new communicator.
  virtual std::shared_ptr<Communicator> split(int color, int key, const CallOptions& options = {}) = 0;

  /// A zero-filled one-dimensional tensor in memory for which this backend's collectives are fastest. Any thread may
  /// call it.
  virtual at::Tensor allocate(std::int64_t elements, at::ScalarType type) = 0;

  /// The same in host memory, for messages that the host writes and reads.
  at::Tensor allocate_on_host(std::int64_t elements, at::ScalarType type) {
    return device().is_cpu() ? allocate(elements, type) : at::zeros({elements}, type);
  }

  /// Sets a label for the following calls, such as "bucket 3"; null removes it. Errors and records contain it. The same
  /// call under different labels is an error, as different calls are; over NCCL, release builds compare only the first
  /// 16 collectives and every 64th, and mix up the data of others. Returns the previous label. See CallPurpose.
  virtual std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> /*label*/) { return {}; }

  /// The last 100 collectives, oldest first, to see where this rank is or was. Empty if the backend keeps no records.
  /// Any thread may call it.
  virtual std::vector<CollectiveRecord> recent_collectives() const { return {}; }

  /// Whether collectives may be called while the current stream of their device records a graph, which then replays
  /// them. All ranks must record and replay the same collectives. Each `Work` must be waited for before the recording
  /// ends, in the recording stream.
  virtual bool is_recordable() const { return false; }

  /// Whether the current stream of the communicator's device is recording a graph. Any thread may call it.
  virtual bool is_recording() const { return false; }

  using BackgroundFailureListener = std::function<void(const std::string& reason)>;

  /// `listener` receives the reason if this communicator, or one split from it, fails while no call is in progress: on
  /// another thread, at most once per communicator, before the communicator is aborted and before the failure ends the
  /// process. It is the last chance to write records, and should take a few seconds at most. Replaces the former
  /// listener; null removes it. Backends whose failures always reach a call or a wait ignore it. Any thread may call
  /// it.
  virtual void on_background_failure(BackgroundFailureListener /*listener*/) {}

  /// Makes all pending and later calls of this rank, and of its peers if the backend supports that, fail with `reason`.
  /// In a job that MPI connects, which cannot interrupt a peer's call, it ends the whole job with exit code `code`,
  /// even if the ranks of a host use shared memory. Any thread may call it.
  virtual void abort(const std::string& reason, ExitCode code = ExitCode::communication) noexcept = 0;
};

/// Labels the communicator's calls with a purpose while this object exists; the outermost purpose wins. Use it for
/// control messages, which errors cannot tell apart otherwise.
///
///     const CallPurpose purpose{communicator, "making a GradientSynchronizer"};
///
/// gives "rank 0 called all_gather_bytes for making a GradientSynchronizer; rank 1 called ..." if the ranks make
/// different calls.
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
