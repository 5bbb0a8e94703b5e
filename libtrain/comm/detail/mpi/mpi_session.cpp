#include <libtrain/comm/detail/mpi/mpi_session.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/reminder.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/comm/detail/mpi/mpi_check.hpp>

namespace libtrain::detail {

namespace {

#ifdef OPEN_MPI
// One of Open MPI's parameters, set by the environment, mpirun's options or a file.
class Setting {
 public:
  explicit Setting(const char* name) {
    int index = 0;
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) return;
    if (MPI_T_cvar_handle_alloc(index, nullptr, &handle_, &size_) != MPI_SUCCESS) handle_ = MPI_T_CVAR_HANDLE_NULL;
  }
  ~Setting() {
    if (handle_ != MPI_T_CVAR_HANDLE_NULL) MPI_T_cvar_handle_free(&handle_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  bool is_empty_text() const {
    std::string value(static_cast<std::size_t>(size_) + 1, '\0');
    return handle_ != MPI_T_CVAR_HANDLE_NULL && MPI_T_cvar_read(handle_, value.data()) == MPI_SUCCESS &&
           value[0] == '\0';
  }
  bool is_zero() const {
    int value = 1;
    return handle_ != MPI_T_CVAR_HANDLE_NULL && size_ == 1 && MPI_T_cvar_read(handle_, &value) == MPI_SUCCESS &&
           value == 0;
  }
  void set(const char* value) { MPI_T_cvar_write(handle_, value); }

 private:
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
  int size_ = 0;
};

// Open MPI's btl/ofi sleeps for a second in MPI_Init if it is not used, and in MPI_Finalize if it is. By default it
// serves only one-sided operations, which libtrain does not use; messages use mtl/ofi. The user's own choice is kept.
// MPI_T is not finalised: Open MPI crashes in a later MPI_Init.
void disable_one_sided_ofi() {
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return;
  if (Setting modules("btl"); modules.is_empty_text() && Setting("btl_ofi_mode").is_zero()) modules.set("^ofi");
}
#else
void disable_one_sided_ofi() {}
#endif

// Logs that MPI_Init waits, and ends the process at the deadline.
void watch_initialization(const std::stop_token& is_initialized, const Deadline& deadline) {
  constexpr std::chrono::milliseconds kPause{500};
  std::mutex mutex;
  std::unique_lock lock{mutex};
  std::condition_variable_any never;
  Reminder reminder;
  while (!deadline.expired()) {
    if (reminder.is_due()) log_warning("Still waiting in MPI_Init for ranks that have not called it.");
    never.wait_for(lock, is_initialized, std::min<Deadline::Clock::duration>(kPause, deadline.remaining()),
                   [] { return false; });
    if (is_initialized.stop_requested()) return;
  }
  log_error(
      "MPI_Init has not returned before the deadline: a rank has not called it, or cannot be reached. Look for a rank "
      "that failed or is still starting, or raise --connect-timeout.");
  // The launcher then ends the other ranks.
  std::_Exit(static_cast<int>(ExitCode::communication));
}

}  // namespace

std::shared_ptr<MpiSession> MpiSession::acquire(const Deadline& deadline) {
  static std::weak_ptr<MpiSession> running;
  auto session = running.lock();
  if (!session) {
    session = std::shared_ptr<MpiSession>(new MpiSession(deadline));
    running = session;
  }
  return session;
}

MpiSession::MpiSession(const Deadline& deadline) {
  int finalized = 0;
  LIBTRAIN_CHECK_MPI(MPI_Finalized(&finalized));
  if (finalized != 0) {
    throw EnvironmentError(
        "MPI has been finalised in this process and cannot start again. Keep the first communicator alive.");
  }
  int initialized = 0;
  LIBTRAIN_CHECK_MPI(MPI_Initialized(&initialized));
  int provided = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    LIBTRAIN_CHECK_MPI(MPI_Query_thread(&provided));
  } else {
    disable_one_sided_ofi();
    const std::jthread watch(watch_initialization, deadline);
    LIBTRAIN_CHECK_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
    finalizes_ = true;
  }
  if (provided != MPI_THREAD_MULTIPLE) {
    throw EnvironmentError(
        "This MPI runs without MPI_THREAD_MULTIPLE, which libtrain's communication threads need. Call MPI_Init_thread "
        "with MPI_THREAD_MULTIPLE, or let libtrain initialise MPI.");
  }
}

MpiSession::~MpiSession() {
  if (finalizes_ && !abandoned_ && std::uncaught_exceptions() == 0) MPI_Finalize();
}

}  // namespace libtrain::detail
