#include <libtrain/checkpoint/background_writer.hpp>

#include <signal.h>

#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {
namespace {

// Blocks the signals that other threads can handle while it lives. A new thread inherits the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &former_);
  }
  BlockedSignals(const BlockedSignals&) = delete;  // restores the mask once
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

 private:
  sigset_t former_{};
};

}  // namespace

BackgroundWriter::~BackgroundWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_error(text("A checkpoint was not written. ", error.what()));
  } catch (...) {
    log_error("A checkpoint was not written.");
  }
}

void BackgroundWriter::start(std::function<void()> job) {
  wait();
  const BlockedSignals blocked;
  is_running_ = true;
  try {
    thread_ = std::thread([this, job = std::move(job)]() mutable {
      try {
        job();
      } catch (...) {
        error_ = std::current_exception();
      }
      job = nullptr;
      is_running_ = false;
    });
  } catch (const std::system_error& error) {
    is_running_ = false;
    throw EnvironmentError(text("Cannot start a thread that writes the checkpoint: ", error.what(),
                                ". Raise the limit on processes (ulimit -u)."));
  }
}

void BackgroundWriter::wait() {
  if (!thread_.joinable()) return;
  thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace libtrain
