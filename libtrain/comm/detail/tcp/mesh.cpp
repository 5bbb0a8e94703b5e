#include <libtrain/comm/detail/tcp/mesh.hpp>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using std::chrono::milliseconds;

// Answers take microseconds; a rank that the system has not scheduled for this long counts as stopped.
constexpr milliseconds kLivenessTimeout{1000};
// A peer's last control messages may arrive after the end of its data.
constexpr milliseconds kGoodbyeTimeout{500};

void watch(const FileDescriptor& events, int descriptor, int rank) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  event.data.fd = rank;
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) throw_system_error("epoll_ctl");
}

std::string modified_in_transit(const std::string& peer) {
  return text("Data from ", peer,
              " failed authentication: it was modified in transit. Check the network between the hosts.");
}

int poll_time(const Deadline& deadline) {
  const auto left = std::min<Deadline::Clock::duration>(deadline.remaining(), std::chrono::hours(1));
  return static_cast<int>(std::chrono::ceil<milliseconds>(left).count());
}

}  // namespace

Mesh::Mesh(int rank, std::vector<MeshPeer> peers, const HostTransport& names)
    : names_(names),
      rank_(rank),
      peers_(std::move(peers)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!events_.is_open() || !wake_.is_open()) throw_system_error("epoll_create1 or eventfd");
  watch(events_, wake_.get(), rank_);
  for (int other = 0; other < world_size(); ++other) {
    if (other != rank_) watch(events_, at(other).control.descriptor(), other);
  }
}

// Peers that do not know the failure yet must not report the end of this connection as its cause.
Mesh::~Mesh() {
  if (!failed_) {
    send_to_all({.word = ControlMessage::Word::goodbye});
  } else if (!is_reported_) {
    report_failure(failure_);
  }
}

void Mesh::begin_call() {
  if (failed_) throw_failure();
  ++call_;
  waits_for_ = LivenessCheck::kNoRank;
  look();
}

std::size_t Mesh::try_send(int peer, const void* data, std::size_t bytes) {
  const auto sent = at(peer).data.send(data, bytes);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EINTR) return 0;
  lose(peer, std::strerror(errno));
}

std::size_t Mesh::try_receive(int peer, void* data, std::size_t bytes) {
  const auto got = at(peer).data.receive(data, bytes);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (got < 0 && errno == EBADMSG) fail(modified_in_transit(describe(peer)));
  lose(peer, got == 0 ? "it closed the connection" : std::strerror(errno));
}

void Mesh::wait(int receiver, int sender, const Deadline& deadline) {
  waits_for_ = sender != LivenessCheck::kNoRank ? sender : receiver;
  if (deadline.expired()) give_up();
  std::array<pollfd, 3> polled{{{.fd = events_.get(), .events = POLLIN, .revents = 0}}};
  nfds_t count = 1;
  if (receiver >= 0) polled[count++] = {.fd = at(receiver).data.socket.get(), .events = POLLOUT, .revents = 0};
  if (sender >= 0) polled[count++] = {.fd = at(sender).data.socket.get(), .events = POLLIN, .revents = 0};
  if (poll(polled.data(), count, poll_time(deadline)) < 0 && errno != EINTR) throw_system_error("poll");
  if (polled[0].revents != 0) look();
}

// Throws the failure of the group, if there is one.
void Mesh::listen(milliseconds time) {
  std::array<epoll_event, 16> ready;
  const int count =
      epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), static_cast<int>(time.count()));
  for (int index = 0; index < count; ++index) {
    const int rank = ready[static_cast<std::size_t>(index)].data.fd;
    if (rank == rank_) throw_failure();
    receive_messages(rank);
  }
}

void Mesh::receive_messages(int rank) {
  std::vector<ControlMessage> messages;
  const bool open = at(rank).control.receive(messages);
  const int error = open ? 0 : errno;
  for (const auto& message : messages) handle(rank, message);
  if (open) return;
  if (error == EBADMSG) fail(modified_in_transit(describe(rank)));
  const bool is_unreachable = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  if (!at(rank).left && is_unreachable) {
    fail(text("The connection to ", describe(rank), " is lost (", std::strerror(error),
              "). Check that host, and the network between the hosts."));
  }
  if (!at(rank).left) fail(text(describe(rank), " exited or was killed. See the log of that rank."));
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, at(rank).control.descriptor(), nullptr);
}

void Mesh::handle(int rank, const ControlMessage& message) {
  using Word = ControlMessage::Word;
  switch (message.word) {
    case Word::failure:
      static_cast<void>(remember(message.text));
      throw_failure();
    case Word::liveness_check:
      if (message.number <= call_) {
        const std::lock_guard lock(mutex_);
        at(rank).control.send({.word = Word::here, .number = message.number, .waits_for = waits_for_});
      }
      return;
    case Word::here:
      if (liveness_ && message.number == call_) liveness_->answered(rank, message.waits_for);
      return;
    case Word::goodbye:
      at(rank).left = true;
      return;
  }
}

void Mesh::give_up() {
  liveness_.emplace(world_size(), rank_, waits_for_);
  send_to_all({.word = ControlMessage::Word::liveness_check, .number = call_});
  const auto end = Deadline::after(kLivenessTimeout);
  while (!liveness_->complete() && !end.expired()) listen(milliseconds(poll_time(end)));
  if (phase_ == Phase::moving) {
    const auto silent_rank = liveness_->silent_rank();
    if (!silent_rank) {
      fail(
          "The deadline passed while data was transferred. Raise the timeout, or check the network between the hosts.");
    }
    fail(text(describe(*silent_rank),
              " stopped moving data before the deadline. Check for a stopped process or an unreachable host."));
  }
  std::vector<int> missing;
  for (const int rank : liveness_->silent()) missing.push_back(names_.name_of(rank));
  if (!missing.empty()) fail(missing_ranks(std::move(missing)));
  fail("The deadline passed before all ranks had arrived. Raise the timeout, or check the network between the hosts.");
}

void Mesh::lose(int rank, const std::string& how) {
  const auto end = Deadline::after(kGoodbyeTimeout);
  while (!at(rank).left && !end.expired()) listen(milliseconds(poll_time(end)));
  if (at(rank).left) {
    fail(text(describe(rank), " destroyed its communicator while other ranks wait for it. ",
              "Make the same collective calls on every rank."));
  }
  fail(text("The connection to ", describe(rank), " is lost (", how,
            "). Check that rank, and the network between the hosts."));
}

std::string Mesh::name(int rank) const {
  return text("rank ", names_.name_of(rank));
}

std::string Mesh::describe(int rank) const {
  return text(name(rank), " at ", peers_[static_cast<std::size_t>(rank)].address);
}

void Mesh::fail(const std::string& reason) {
  if (remember(reason)) report_failure(reason);
  throw_failure();
}

void Mesh::throw_failure() {
  const std::lock_guard lock(mutex_);
  throw CommunicationError(failure_);
}

// True for the first reason, which is the one to keep.
bool Mesh::remember(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failed_) return false;
  failure_ = reason;
  failed_ = true;
  static_cast<void>(eventfd_write(wake_.get(), 1));
  return true;
}

void Mesh::send_to_all(const ControlMessage& message) {
  const std::lock_guard lock(mutex_);
  for (int other = 0; other < world_size(); ++other) {
    if (other != rank_) at(other).control.send(message);
  }
}

void Mesh::report_failure(const std::string& reason) {
  is_reported_ = true;
  send_to_all({.word = ControlMessage::Word::failure, .text = reason});
}

void Mesh::abort(const std::string& reason) noexcept try {
  const auto who = text(name(rank_), " failed: ");
  if (remember(reason)) report_failure(reason.starts_with(who) ? reason : who + reason);
} catch (...) {
  // Out of memory: the peers' deadlines still end their waits.
}

void Mesh::refuse(const std::string& reason) noexcept try {
  if (remember(reason)) report_failure(reason);
} catch (...) {
  // Out of memory, as in abort.
}

}  // namespace libtrain::detail
