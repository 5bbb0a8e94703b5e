#pragma once

#include <unistd.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace libtrain::detail {

/// Owns a file descriptor and closes it in its destructor. The result of close(2) is ignored: code that writes and
/// needs it calls release() and closes the descriptor itself. Any thread may call get() while no thread changes the
/// object.
class FileDescriptor {
 public:
  FileDescriptor() = default;

  /// Takes over `number` as a system call returned it: below 0 if the call failed. errno is unchanged.
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

  /// The number; -1, or the negative result of the system call, if nothing is open.
  int get() const noexcept { return number_; }

  bool is_open() const noexcept { return number_ >= 0; }

  /// Returns the number, which the caller must close.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

  /// Closes it now.
  void reset() noexcept {
    if (is_open()) ::close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;
};

/// Writes `bytes` to the open file `descriptor`. Returns how many were written: all of them, or fewer after an error,
/// which is in errno.
std::size_t write_all(int descriptor, std::string_view bytes) noexcept;

}  // namespace libtrain::detail
