#include <libtrain/comm/detail/mpi/mpi_session.hpp>

#include <mpi.h>

#include <exception>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/mpi/mpi_check.hpp>

namespace libtrain {

std::shared_ptr<MpiSession> MpiSession::acquire() {
  static std::weak_ptr<MpiSession> running;
  auto session = running.lock();
  if (!session) {
    session = std::shared_ptr<MpiSession>(new MpiSession);
    running = session;
  }
  return session;
}

MpiSession::MpiSession() {
  int finalized = 0;
  LIBTRAIN_CHECK_MPI(MPI_Finalized(&finalized));
  if (finalized != 0) {
    throw EnvironmentError(
        "MPI has been finalised in this process and cannot start again: keep the first communicator alive.");
  }
  int initialized = 0;
  LIBTRAIN_CHECK_MPI(MPI_Initialized(&initialized));
  int provided = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    LIBTRAIN_CHECK_MPI(MPI_Query_thread(&provided));
  } else {
    LIBTRAIN_CHECK_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
    finalizes_ = true;
  }
  if (provided != MPI_THREAD_MULTIPLE) {
    throw EnvironmentError(
        "This MPI runs without MPI_THREAD_MULTIPLE, which libtrain's communication threads need: call MPI_Init_thread "
        "with MPI_THREAD_MULTIPLE, or let libtrain initialise MPI.");
  }
}

MpiSession::~MpiSession() {
  if (finalizes_ && !abandoned_ && std::uncaught_exceptions() == 0) MPI_Finalize();
}

}  // namespace libtrain
