#pragma once

#include <cstddef>
#include <utility>

namespace libtrain::detail {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// A shared mapping of a file. From kHugePageBytes up it begins at a multiple of that and requests huge pages.
class Mapping {
 public:
  Mapping() = default;

  /// The first `bytes` bytes of `file`, which may be closed afterwards. Throws EnvironmentError.
  Mapping(int file, std::size_t bytes);

  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace libtrain::detail
