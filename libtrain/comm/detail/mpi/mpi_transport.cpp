#include <libtrain/comm/detail/mpi/mpi_transport.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/bytes.hpp>
#include <libtrain/comm/detail/mpi/mpi_check.hpp>
#include <libtrain/numeric/detail/arithmetic.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kChunkBytes = 4 << 20;
constexpr std::size_t kHugePageBytes = 2 << 20;

MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::float32:
      return MPI_FLOAT;
    case DataType::float64:
      return MPI_DOUBLE;
    case DataType::int32:
      return MPI_INT32_T;
    case DataType::int64:
      return MPI_INT64_T;
    case DataType::uint8:
      return MPI_UINT8_T;
    case DataType::float16:
    case DataType::bfloat16:
      break;
  }
  throw UsageError(text("MPI cannot reduce ", to_string(type), ". Convert the tensor to float32 first."));
}

template <ReduceOp op>
void combine_floats(void* operand, void* accumulator, int* count, MPI_Datatype* type) {
  combine(accumulator, operand, static_cast<std::size_t>(*count),
          *type == MPI_FLOAT ? DataType::float32 : DataType::float64, op);
}

// MPI_MIN and MPI_MAX lose the NaN of some ranks. Not commutative, so that all ranks combine in one order and get the
// same bits.
MPI_Op keeping_nan(MPI_User_function* function) {
  MPI_Op op = MPI_OP_NULL;
  LIBTRAIN_CHECK_MPI(MPI_Op_create(function, 0, &op));
  return op;
}

MPI_Op mpi_op(ReduceOp op, DataType type) {
  static const MPI_Op minimum = keeping_nan(combine_floats<ReduceOp::minimum>);
  static const MPI_Op maximum = keeping_nan(combine_floats<ReduceOp::maximum>);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return MPI_SUM;
    case ReduceOp::minimum:
      return is_floating(type) ? minimum : MPI_MIN;
    case ReduceOp::maximum:
      return is_floating(type) ? maximum : MPI_MAX;
    case ReduceOp::product:
      return MPI_PROD;
  }
  throw UsageError("MPI cannot compute this reduction.");
}

// Marks the communicator as not to be freed during a call, and permanently if the call throws.
class Attempt {
 public:
  explicit Attempt(bool& healthy) : healthy_(healthy), exceptions_(std::uncaught_exceptions()) { healthy_ = false; }
  ~Attempt() { healthy_ = std::uncaught_exceptions() == exceptions_; }
  Attempt(const Attempt&) = delete;  // restores one flag
  Attempt& operator=(const Attempt&) = delete;

 private:
  bool& healthy_;
  int exceptions_;
};

}  // namespace

std::unique_ptr<HostTransport> MpiTransport::of_world(const Deadline& deadline) {
  auto session = MpiSession::acquire(deadline);
  MPI_Comm comm = MPI_COMM_NULL;
  LIBTRAIN_CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  return std::unique_ptr<HostTransport>(new MpiTransport(std::move(session), comm));
}

MpiTransport::MpiTransport(std::shared_ptr<MpiSession> session, MPI_Comm comm)
    : session_(std::move(session)), comm_(comm), arrival_(comm, aborted_) {
  LIBTRAIN_CHECK_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  LIBTRAIN_CHECK_MPI(MPI_Comm_rank(comm_, &rank_));
  LIBTRAIN_CHECK_MPI(MPI_Comm_size(comm_, &world_size_));
}

MpiTransport::~MpiTransport() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  if (healthy_ && !aborted_.exists() && std::uncaught_exceptions() == 0) {
    MPI_Comm_free(&comm_);
  } else {
    session_->abandon();
  }
}

bool MpiTransport::arrive(const Arrival& arrival, const WaitPolicy& policy) {
  const Attempt attempt{healthy_};
  return arrival_.wait(arrival.fingerprint, *this, policy);
}

void MpiTransport::refuse_arrival(const std::string& reason) {
  healthy_ = false;
  arrival_.refuse(reason);
}

void MpiTransport::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const WaitPolicy& /*policy*/) {
  const Attempt attempt{healthy_};
  const auto size = size_of(type);
  for_each_chunk(count, kChunkBytes / size, [&](std::size_t offset, std::size_t length) {
    auto* chunk = at_offset(output, offset * size);
    const void* source = input == output ? MPI_IN_PLACE : at_offset(input, offset * size);
    LIBTRAIN_CHECK_MPI(MPI_Allreduce(source, chunk, static_cast<int>(length), mpi_type(type), mpi_op(op, type), comm_));
    if (op == ReduceOp::average) divide(chunk, length, type, world_size_);
  });
}

void MpiTransport::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
                          const WaitPolicy& /*policy*/) {
  const Attempt attempt{healthy_};
  const auto size = size_of(type);
  std::vector<char> own;
  for_each_chunk(count, kChunkBytes / size, [&](std::size_t offset, std::size_t length) {
    const auto* source = at_offset(input, offset * size);
    auto* target = output == nullptr ? nullptr : at_offset(output, offset * size);
    // Not MPI_IN_PLACE: MPICH 4.0 crashes on it if the root is not rank 0.
    if (source == target) {
      own.assign(source, source + length * size);
      source = own.data();
    }
    LIBTRAIN_CHECK_MPI(
        MPI_Reduce(source, target, static_cast<int>(length), mpi_type(type), mpi_op(op, type), root, comm_));
    if (op == ReduceOp::average && rank_ == root) divide(target, length, type, world_size_);
  });
}

void MpiTransport::broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& /*policy*/) {
  const Attempt attempt{healthy_};
  for_each_chunk(bytes, kChunkBytes, [&](std::size_t offset, std::size_t length) {
    LIBTRAIN_CHECK_MPI(MPI_Bcast(at_offset(data, offset), static_cast<int>(length), MPI_BYTE, root, comm_));
  });
}

void MpiTransport::all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& /*policy*/) {
  const Attempt attempt{healthy_};
  const auto* source = static_cast<const char*>(input);
  auto* target = static_cast<char*>(output);
  const auto ranks = static_cast<std::size_t>(world_size_);
  if (bytes <= kChunkBytes / ranks) {
    if (bytes == 0) return;
    const bool in_place = source == part_of(target, rank_, bytes);
    LIBTRAIN_CHECK_MPI(MPI_Allgather(in_place ? MPI_IN_PLACE : input, static_cast<int>(bytes), MPI_BYTE, target,
                                     static_cast<int>(bytes), MPI_BYTE, comm_));
    return;
  }
  // Pieces of all ranks arrive side by side, and are then copied to their places.
  const auto piece = std::max<std::size_t>(kChunkBytes / ranks, 64 << 10);
  std::vector<char> side_by_side(piece * ranks);
  for_each_chunk(bytes, piece, [&](std::size_t offset, std::size_t length) {
    LIBTRAIN_CHECK_MPI(MPI_Allgather(source + offset, static_cast<int>(length), MPI_BYTE, side_by_side.data(),
                                     static_cast<int>(length), MPI_BYTE, comm_));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::memcpy(target + rank * bytes + offset, side_by_side.data() + rank * length, length);
    }
  });
}

void MpiTransport::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  const WaitPolicy& /*policy*/) {
  const Attempt attempt{healthy_};
  // Pieces of all parts are laid side by side, so that one call scatters to every rank.
  const auto size = size_of(type);
  const auto ranks = static_cast<std::size_t>(world_size_);
  const auto piece = std::max<std::size_t>(kChunkBytes / size / ranks, 1024);
  std::vector<char> side_by_side(std::min(piece, count) * size * ranks);
  const auto* source = static_cast<const char*>(input);
  auto* target = static_cast<char*>(output);
  for_each_chunk(count, piece, [&](std::size_t offset, std::size_t length) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::memcpy(side_by_side.data() + rank * length * size, source + (rank * count + offset) * size, length * size);
    }
    auto* part = target + offset * size;
    LIBTRAIN_CHECK_MPI(MPI_Reduce_scatter_block(side_by_side.data(), part, static_cast<int>(length), mpi_type(type),
                                                mpi_op(op, type), comm_));
    if (op == ReduceOp::average) divide(part, length, type, world_size_);
  });
}

void MpiTransport::all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& /*policy*/) {
  const Attempt attempt{healthy_};
  // Pieces of all parts are laid side by side, as in all_gather.
  const auto ranks = static_cast<std::size_t>(world_size_);
  const auto piece = std::max<std::size_t>(kChunkBytes / ranks, 64 << 10);
  std::vector<char> sent(std::min(piece, bytes) * ranks);
  std::vector<char> received(sent.size());
  for_each_chunk(bytes, piece, [&](std::size_t offset, std::size_t length) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::memcpy(sent.data() + rank * length, at_offset(input, rank * bytes + offset), length);
    }
    LIBTRAIN_CHECK_MPI(MPI_Alltoall(sent.data(), static_cast<int>(length), MPI_BYTE, received.data(),
                                    static_cast<int>(length), MPI_BYTE, comm_));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::memcpy(at_offset(output, rank * bytes + offset), received.data() + rank * length, length);
    }
  });
}

std::unique_ptr<HostTransport> MpiTransport::split(int color, int key, const WaitPolicy& /*policy*/) {
  const Attempt attempt{healthy_};
  MPI_Comm part = MPI_COMM_NULL;
  LIBTRAIN_CHECK_MPI(MPI_Comm_split(comm_, color, key, &part));
  return std::unique_ptr<HostTransport>(new MpiTransport(session_, part));
}

std::shared_ptr<void> MpiTransport::allocate(std::size_t bytes) {
  // MPI copies between processes page by page: large pages make that up to twice as fast.
  if (bytes < kHugePageBytes) return nullptr;
  const auto rounded = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* memory = std::aligned_alloc(kHugePageBytes, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory, rounded, MADV_HUGEPAGE);
  return {memory, std::free};
}

void MpiTransport::abort(const std::string& reason) noexcept {
  aborted_.set(reason);
}

void MpiTransport::end_job(const std::string& reason, ExitCode code) noexcept {
  abort(reason);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
}

}  // namespace libtrain::detail
