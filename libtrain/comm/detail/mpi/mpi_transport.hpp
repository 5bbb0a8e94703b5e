#pragma once

#include <memory>
#include <string>

#include <mpi.h>

#include <libtrain/comm/detail/first_failure.hpp>
#include <libtrain/comm/detail/mpi/mpi_arrival.hpp>
#include <libtrain/comm/detail/mpi/mpi_session.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// Collectives over MPI on libtrain's own communicator (a duplicate of MPI_COMM_WORLD, or a part of one), in blocking
/// calls on pieces of at most 4 MiB: larger pieces are several times slower per byte, and non-blocking calls do not
/// progress while the ranks compute.
class MpiTransport : public HostTransport {
 public:
  /// All ranks of the job must call this. `deadline` is that of MpiSession::acquire().
  static std::unique_ptr<HostTransport> of_world(const Deadline& deadline);

  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string_view name() const override { return "mpi"; }

  bool interruptible() const override { return false; }

  bool arrive(const Arrival& arrival, const WaitPolicy& policy) override;
  void refuse_arrival(const std::string& reason) override;
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const WaitPolicy& policy) override;
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              const WaitPolicy& policy) override;
  void broadcast(void* data, std::size_t bytes, int root, const WaitPolicy& policy) override;
  void all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) override;
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const WaitPolicy& policy) override;
  void all_to_all(const void* input, void* output, std::size_t bytes, const WaitPolicy& policy) override;
  std::unique_ptr<HostTransport> split(int color, int key, const WaitPolicy& policy) override;
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  void abort(const std::string& reason) noexcept override;
  void end_job(const std::string& reason, ExitCode code) noexcept override;

 private:
  MpiTransport(std::shared_ptr<MpiSession> session, MPI_Comm comm);

  std::shared_ptr<MpiSession> session_;
  MPI_Comm comm_;
  int rank_ = 0;
  int world_size_ = 1;
  bool healthy_ = true;  // false once a call has failed: freeing a communicator is collective
  FirstFailure aborted_;
  MpiArrival arrival_;
};

}  // namespace libtrain::detail
