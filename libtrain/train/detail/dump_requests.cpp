#include <libtrain/train/detail/dump_requests.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/train/detail/abstract_address.hpp>

namespace libtrain::detail {

namespace {

// Waits for a request of this user, and returns true; false if the socket is shut down. The kernel attests the sender.
bool await_request(int socket, const std::atomic<bool>& closing) {
  while (true) {
    char request = 0;
    iovec bytes{.iov_base = &request, .iov_len = 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const auto received = recvmsg(socket, &message, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 || closing) return false;
    const auto* header = CMSG_FIRSTHDR(&message);
    ucred sender{};
    if (header == nullptr || header->cmsg_type != SCM_CREDENTIALS) continue;
    std::memcpy(&sender, CMSG_DATA(header), sizeof(sender));
    if (sender.uid == geteuid()) return true;
  }
}

}  // namespace

DumpRequests::DumpRequests(std::string run, int rank, std::function<void()> answer)
    : run_(std::move(run)), rank_(rank), socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  const AbstractAddress address{name_of(rank)};
  constexpr int kOn = 1;
  if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &kOn, sizeof(kOn)) != 0 ||
      bind(socket_, address.get(), address.length()) != 0)
    return;
  try {
    thread_ = std::thread([this, answer = std::move(answer)] {
      while (await_request(socket_, closing_)) answer();
    });
  } catch (const std::system_error&) {
    // Training works without this thread.
  }
}

DumpRequests::~DumpRequests() {
  if (thread_.joinable()) {
    closing_ = true;
    shutdown(socket_, SHUT_RD);
    thread_.join();
  }
  if (socket_ >= 0) close(socket_);
}

std::string DumpRequests::name_of(int rank) const {
  return text("libtrain ", geteuid(), " dump ", run_, ' ', rank);
}

void DumpRequests::ask_others(int world_size) const {
  constexpr char kRequest = '?';
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank == rank_) continue;
    const AbstractAddress address{name_of(rank)};
    // Fails for ranks of other hosts, and for a rank whose queue of requests is full; both can be ignored.
    static_cast<void>(sendto(socket_, &kRequest, 1, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(), address.length()));
  }
}

}  // namespace libtrain::detail
