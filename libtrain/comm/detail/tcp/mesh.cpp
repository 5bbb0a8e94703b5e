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

using Word = ControlMessage::Word;
using std::chrono::milliseconds;

// Answers take microseconds; a rank that the system has not let run for this long counts as stopped.
constexpr milliseconds kRollCallTime{1000};
// A peer's last words travel beside the end of its data.
constexpr milliseconds kLastWordsTime{500};

void watch(const FileDescriptor& events, int descriptor, int rank) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  event.data.fd = rank;
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) throw_system_error("epoll_ctl");
}

int poll_time(const Deadline& deadline) {
  constexpr auto kLongest = std::chrono::hours(1);
  const auto left = std::min<Deadline::Clock::duration>(deadline.remaining(), kLongest);
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

// Those who have not heard of the failure yet must not take the end of this connection for its cause.
Mesh::~Mesh() {
  if (!failed_) {
    tell_all({.word = Word::goodbye});
  } else if (!told_) {
    tell_failure(failure_);
  }
}

void Mesh::begin_call() {
  if (failed_) throw_failure();
  ++call_;
  waits_for_ = RollCall::kNoRank;
  look();
}

std::size_t Mesh::try_send(int peer, const void* data, std::size_t bytes) {
  const int socket = at(peer).data.get();
  const auto& stream = at(peer).stream;
  const auto sent = stream ? stream->send(socket, data, bytes) : send(socket, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EINTR) return 0;
  lose(peer, std::strerror(errno));
}

std::size_t Mesh::try_receive(int peer, void* data, std::size_t bytes) {
  const int socket = at(peer).data.get();
  const auto& stream = at(peer).stream;
  const auto got = stream ? stream->receive(socket, data, bytes) : recv(socket, data, bytes, MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (got < 0 && errno == EBADMSG) fail(text("What ", describe(peer), " has sent was changed in transit."));
  lose(peer, got == 0 ? "it closed the connection" : std::strerror(errno));
}

void Mesh::wait(int receiver, int sender, const Deadline& deadline) {
  waits_for_ = sender != RollCall::kNoRank ? sender : receiver;
  if (deadline.expired()) give_up();
  std::array<pollfd, 3> polled{{{.fd = events_.get(), .events = POLLIN, .revents = 0}}};
  nfds_t count = 1;
  if (receiver >= 0) polled[count++] = {.fd = at(receiver).data.get(), .events = POLLOUT, .revents = 0};
  if (sender >= 0) polled[count++] = {.fd = at(sender).data.get(), .events = POLLIN, .revents = 0};
  if (poll(polled.data(), count, poll_time(deadline)) < 0 && errno != EINTR) throw_system_error("poll");
  if (polled[0].revents != 0) look();
}

// Throws when anybody has failed.
void Mesh::listen(milliseconds policy) {
  std::array<epoll_event, 16> ready;
  const int count =
      epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), static_cast<int>(policy.count()));
  for (int index = 0; index < count; ++index) {
    const int rank = ready[static_cast<std::size_t>(index)].data.fd;
    if (rank == rank_) throw_failure();
    hear(rank);
  }
}

void Mesh::hear(int rank) {
  std::vector<ControlMessage> messages;
  const bool open = at(rank).control.receive(messages);
  const bool was_changed = !open && errno == EBADMSG;
  for (const auto& message : messages) handle(rank, message);
  if (open) return;
  if (was_changed) fail(text("What ", describe(rank), " has sent was changed in transit."));
  if (!at(rank).left) fail(text(describe(rank), " is gone: it exited or was killed."));
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, at(rank).control.descriptor(), nullptr);
}

void Mesh::handle(int rank, const ControlMessage& message) {
  switch (message.word) {
    case Word::failure:
      static_cast<void>(remember(message.text));
      throw_failure();
    case Word::roll_call:
      if (message.number <= call_) {
        const std::lock_guard lock(mutex_);
        at(rank).control.send({.word = Word::here, .number = message.number, .waits_for = waits_for_});
      }
      return;
    case Word::here:
      if (roll_ && message.number == call_) roll_->answered(rank, message.waits_for);
      return;
    case Word::goodbye:
      at(rank).left = true;
      return;
  }
}

void Mesh::give_up() {
  roll_.emplace(world_size(), rank_, waits_for_);
  tell_all({.word = Word::roll_call, .number = call_});
  const auto end = Deadline::after(kRollCallTime);
  while (!roll_->complete() && !end.expired()) listen(milliseconds(poll_time(end)));
  if (phase_ == Phase::moving) {
    const auto silent_rank = roll_->silent_rank();
    fail(silent_rank ? text(describe(*silent_rank), " stopped moving data before the deadline.")
                     : "The deadline passed while data was moving: the network is too slow for this timeout.");
  }
  std::vector<int> missing;
  for (const int rank : roll_->silent()) missing.push_back(names_.name_of(rank));
  fail(missing.empty() ? "The deadline passed before all ranks had arrived: the network is too slow for this timeout."
                       : missing_ranks(std::move(missing)));
}

void Mesh::lose(int rank, const std::string& how) {
  const auto end = Deadline::after(kLastWordsTime);
  while (!at(rank).left && !end.expired()) listen(milliseconds(poll_time(end)));
  if (at(rank).left) {
    fail(text(describe(rank), " has left: it destroyed its communicator while others still wait for it."));
  }
  fail(text("The connection to ", describe(rank), " is lost: ", how, "."));
}

std::string Mesh::name(int rank) const {
  return text("rank ", names_.name_of(rank));
}

std::string Mesh::describe(int rank) const {
  return text(name(rank), " at ", peers_[static_cast<std::size_t>(rank)].address);
}

void Mesh::fail(const std::string& reason) {
  if (remember(reason)) tell_failure(reason);
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

void Mesh::tell_all(const ControlMessage& message) {
  const std::lock_guard lock(mutex_);
  for (int other = 0; other < world_size(); ++other) {
    if (other != rank_) at(other).control.send(message);
  }
}

void Mesh::tell_failure(const std::string& reason) {
  told_ = true;
  tell_all({.word = Word::failure, .text = reason});
}

void Mesh::abort(const std::string& reason) noexcept {
  try {
    const auto who = text(name(rank_), " failed: ");
    if (remember(reason)) tell_failure(reason.starts_with(who) ? reason : who + reason);
  } catch (...) {
    // Out of memory: the peers' deadlines still end their waits.
  }
}

void Mesh::refuse(const std::string& reason) noexcept {
  try {
    if (remember(reason)) tell_failure(reason);
  } catch (...) {
    // Out of memory, as in abort.
  }
}

}  // namespace libtrain::detail
