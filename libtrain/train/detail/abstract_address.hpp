#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace libtrain::detail {

/// The address of an abstract socket of Linux: it is not a file, belongs to the host (its network namespace), and is
/// released when the process that bound it ends, even if it is killed. Names are cut after 107 characters.
class AbstractAddress {
 public:
  explicit AbstractAddress(const std::string& name) {
    address_.sun_family = AF_UNIX;
    // A zero byte at the start makes the name abstract.
    const auto label = name.substr(0, sizeof(address_.sun_path) - 1);
    std::copy(label.begin(), label.end(), address_.sun_path + 1);
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + label.size());
  }

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t length() const { return length_; }

 private:
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

}  // namespace libtrain::detail
