#pragma once

#include <unistd.h>

#include <utility>

namespace libtrain::detail {

/// Owns a file descriptor (a file, a socket, whatever else the kernel numbers so) and closes it at the end. What
/// close(2) says is dropped: who has written and must know releases the number and closes it. Any thread may ask for
/// the number while none changes it.
class FileDescriptor {
 public:
  FileDescriptor() = default;

  /// Takes over `number`, as a system call has returned it: below 0 where that has failed. errno stays as it is.
  explicit FileDescriptor(int number) noexcept : number_(number) {}

  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = other.release();
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  /// The number, -1 or what the system call returned where nothing is open.
  int get() const noexcept { return number_; }

  bool is_open() const noexcept { return number_ >= 0; }

  /// The number, which is the caller's to close from now on.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

  /// Closes it now.
  void reset() noexcept {
    if (is_open()) ::close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;
};

}  // namespace libtrain::detail
