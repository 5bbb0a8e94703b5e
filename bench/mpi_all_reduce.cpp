#include <bench/mpi_all_reduce.hpp>

#include <mpi.h>

#include <climits>
#include <exception>
#include <memory>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/mpi/mpi_check.hpp>
#include <libtrain/comm/detail/mpi/mpi_session.hpp>

namespace libtrain::bench {

namespace {

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
  throw UsageError(text("MPI has no ", to_string(type), ": leave mpi out of --peers, or choose another --dtype."),
                   ErrorScope::all_ranks);
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::minimum:
      return MPI_MIN;
    case ReduceOp::maximum:
      return MPI_MAX;
    case ReduceOp::product:
      return MPI_PROD;
    case ReduceOp::average:
      break;
  }
  throw UsageError("MPI has no average: leave mpi out of --peers, or choose another --op.", ErrorScope::all_ranks);
}

class World {
 public:
  explicit World(int world_size) {
    int ranks = 0;
    LIBTRAIN_CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    if (ranks != world_size) {
      throw EnvironmentError(text("MPI knows ", ranks, " ranks where the job has ", world_size,
                                  ": start the program with mpirun, or leave mpi out of --peers."));
    }
    LIBTRAIN_CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    LIBTRAIN_CHECK_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  }

  // Freeing waits for all ranks, who may not come when an exception unwinds.
  ~World() {
    if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
  }

  World(const World&) = delete;  // one owner of the communicator
  World& operator=(const World&) = delete;

  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op) {
    if (count > INT_MAX) {
      throw UsageError(
          text("MPI_Allreduce takes up to ", INT_MAX, " elements, not ", count, ": choose smaller --sizes."),
          ErrorScope::all_ranks);
    }
    LIBTRAIN_CHECK_MPI(MPI_Allreduce(input == output ? MPI_IN_PLACE : input, output, static_cast<int>(count),
                                     mpi_type(type), mpi_op(op), comm_));
  }

 private:
  std::shared_ptr<detail::MpiSession> session_ = detail::MpiSession::acquire(Deadline::never());
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace

HostAllReduce mpi_all_reduce(int world_size) {
  return
      [world = std::make_shared<World>(world_size)](const void* input, void* output, std::size_t count, DataType type,
                                                    ReduceOp op) { world->all_reduce(input, output, count, type, op); };
}

}  // namespace libtrain::bench
