#include <libtrain/comm/detail/mpi/mpi_session.hpp>

#include <mpi.h>

#include <exception>
#include <string>

#include <libtrain/base/error.hpp>
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

}  // namespace

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
        "MPI has been finalised in this process and cannot start again. Keep the first communicator alive.");
  }
  int initialized = 0;
  LIBTRAIN_CHECK_MPI(MPI_Initialized(&initialized));
  int provided = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    LIBTRAIN_CHECK_MPI(MPI_Query_thread(&provided));
  } else {
    disable_one_sided_ofi();
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
