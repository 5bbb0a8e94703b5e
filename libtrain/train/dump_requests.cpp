#include <libtrain/train/dump_requests.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/train/abstract_address.hpp>

namespace libtrain::detail {

namespace {

// Until a request comes: true. Until the socket is shut down: false.
bool await_request(int socket) {
  char request = 0;
  ssize_t received = 0;
  do {
    received = recv(socket, &request, 1, 0);
  } while (received < 0 && errno == EINTR);
  return received > 0;
}

}  // namespace

DumpRequests::DumpRequests(std::string run, int rank, std::function<void()> answer)
    : run_(std::move(run)), rank_(rank), socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  const AbstractAddress address{name_of(rank)};
  if (socket_ < 0 || bind(socket_, address.get(), address.length()) != 0) return;
  try {
    thread_ = std::thread([socket = socket_, answer = std::move(answer)] {
      if (await_request(socket)) answer();
    });
  } catch (const std::system_error&) {
    // Training needs no such thread.
  }
}

DumpRequests::~DumpRequests() {
  if (thread_.joinable()) {
    shutdown(socket_, SHUT_RD);
    thread_.join();
  }
  if (socket_ >= 0) close(socket_);
}

std::string DumpRequests::name_of(int rank) const {
  return text("libtrain dump ", run_, ' ', rank);
}

void DumpRequests::ask_others(int world_size) const {
  constexpr char kRequest = '?';
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank == rank_) continue;
    const AbstractAddress address{name_of(rank)};
    // Ranks of other hosts are not there, and one that has been asked too often has been asked.
    static_cast<void>(sendto(socket_, &kRequest, 1, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(), address.length()));
  }
}

}  // namespace libtrain::detail
