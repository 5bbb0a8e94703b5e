#include <libtrain/comm/detail/tcp/handshake.hpp>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr char kWelcome = 'w';

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <typename T>
T value_of(const std::string& bytes, std::size_t offset = 0) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

}  // namespace

Refusal Refusal::because(Reason reason, const std::string& text) {
  Refusal refusal{.reason = reason};
  text.copy(refusal.text.data(), refusal.text.size() - 1);
  return refusal;
}

Handshake Handshake::call(FileDescriptor socket, Hello hello, const Digest& secret) {
  Handshake handshake{std::move(socket)};
  hello.magic = kHelloMagic;
  fill_random(hello.nonce.data(), hello.nonce.size());
  handshake.hello_ = hello;
  handshake.secret_ = secret;
  handshake.send(bytes_of(handshake.hello_));
  return handshake;
}

Handshake Handshake::answer(FileDescriptor socket, HelloCheck check_hello) {
  Handshake handshake{std::move(socket)};
  handshake.check_hello_ = std::move(check_hello);
  handshake.expect(Step::hello, sizeof(Hello));
  return handshake;
}

Handshake Handshake::failed(std::string reason) {
  Handshake handshake{FileDescriptor{}};
  handshake.fail(std::move(reason));
  return handshake;
}

short Handshake::events() const {
  return static_cast<short>(outbox_.empty() && step_ != Step::connecting ? POLLIN : POLLOUT);
}

Handshake::State Handshake::advance() {
  while (state_ == State::underway) {
    if (step_ == Step::connecting) {
      // A socket that still connects reports no error yet.
      pollfd connected{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
      if (poll(&connected, 1, 0) <= 0) break;
      if (const int code = connection_error(socket_)) {
        fail(std::strerror(code));
        break;
      }
      expect(Step::challenge, 2 * sizeof(Digest));
    }
    if (!flush() || !fill()) break;
    next();
  }
  return state_;
}

void Handshake::next() {
  switch (step_) {
    case Step::hello:
      return read_hello();
    case Step::challenge:
      return read_challenge();
    case Step::proof:
      return read_proof();
    case Step::welcome:
      state_ = State::done;
      return;
    case Step::connecting:
      return;
  }
}

void Handshake::read_hello() {
  hello_ = value_of<Hello>(inbox_);
  if (hello_.magic != kHelloMagic) return fail("it did not send a libtrain handshake");
  const auto outcome = check_hello_(hello_);
  if (!outcome.secret) {
    // The socket's buffer is empty: if the refusal does not fit into it, do not wait.
    if (outcome.refusal.reason != Refusal::Reason::silent) {
      send(bytes_of(outcome.refusal));
      flush();
    }
    return fail(outcome.reason);
  }
  secret_ = *outcome.secret;
  fill_random(answer_nonce_.data(), answer_nonce_.size());
  send(bytes_of(answer_nonce_) + bytes_of(proof_of("answerer")));
  expect(Step::proof, sizeof(Digest));
}

void Handshake::read_challenge() {
  if (const auto refusal = value_of<Refusal>(inbox_); refusal.magic == Refusal::kMagic) {
    refusal_ = refusal;
    refusal_->text.back() = '\0';
    return fail("it refuses this rank");
  }
  answer_nonce_ = value_of<Digest>(inbox_);
  if (!equal_digests(value_of<Digest>(inbox_, sizeof(Digest)), proof_of("answerer"))) {
    return fail("the process that listens there does not have the job's secret");
  }
  send(bytes_of(proof_of("caller")));
  expect(Step::welcome, 1);
}

void Handshake::read_proof() {
  if (!equal_digests(value_of<Digest>(inbox_), proof_of("caller"))) return fail("it does not have the job's secret");
  state_ = State::proven;
}

void Handshake::welcome() {
  send(std::string{kWelcome});
  if (flush()) {
    state_ = State::done;
  } else {
    fail("the connection ended");
  }
}

void Handshake::expect(Step step, std::size_t bytes) {
  step_ = step;
  expected_ = bytes;
  inbox_.clear();
}

// True once everything queued is sent.
bool Handshake::flush() {
  if (!send_queued(socket_.get(), outbox_)) fail(std::strerror(errno));
  return outbox_.empty();
}

// True once all expected bytes are received. Never reads beyond them.
bool Handshake::fill() {
  std::array<char, sizeof(Hello)> buffer{};
  while (inbox_.size() < expected_) {
    const auto wanted = std::min(buffer.size(), expected_ - inbox_.size());
    const auto got = recv(socket_.get(), buffer.data(), wanted, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      fail(got == 0 ? "it closed the connection" : std::strerror(errno));
      return false;
    }
    inbox_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

Digest Handshake::proof_of(const char* side) const {
  return authenticate(secret_, text("libtrain ", side, ' ') + bytes_of(hello_) + bytes_of(answer_nonce_));
}

void Handshake::fail(std::string reason) {
  state_ = State::failed;
  reason_ = std::move(reason);
}

}  // namespace libtrain::detail
