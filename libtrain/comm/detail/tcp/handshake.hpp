#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <libtrain/comm/detail/tcp/secret.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>

namespace libtrain::detail {

/// The purpose of a connection. A pair of ranks has two, so that messages about failures never wait behind data; during
/// the rendezvous, each rank has one to rank 0.
enum class Channel : std::uint32_t { data, control, rendezvous };

inline constexpr std::uint64_t kHelloMagic = 0x326e696172746c54;  // "Tltrain2"

/// The first message of the side that connects. Sent as it is in memory: another byte order gives another magic.
struct Hello {
  std::uint64_t magic = 0;
  std::array<unsigned char, 16> group = {};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t world_size = 0;
  Channel channel = Channel::data;
  std::uint64_t arguments = 0;  ///< see Command; 0 if the job has a name
  std::uint64_t key = 0;        ///< see JobKey::fingerprint
  Digest nonce = {};
};
static_assert(sizeof(Hello) == 88);

/// Why a caller is refused, in as many bytes as a challenge. Not authenticated: it advises, but proves nothing.
struct Refusal {
  enum class Reason : std::uint32_t {
    silent,           ///< the connection is closed without an answer
    other_job,        ///< `text` names the answerer's job
    other_key,        ///< the answerer expects a different key, from the source `text`
    other_arguments,  ///< the caller has different arguments, and ranks with the same ones may still connect
    taken,            ///< `text` is the address of the process that has connected as this rank
  };

  std::uint64_t magic = kMagic;
  Reason reason = Reason::silent;
  std::array<char, 52> text = {};

  static constexpr std::uint64_t kMagic = 0x0064657375666572;  // "refused"
  static Refusal because(Reason reason, const std::string& text);
};
static_assert(sizeof(Refusal) == 64);

/// The mutual authentication that opens a connection between two ranks. No call blocks:
///
///     caller                                 answerer
///     Hello                              ->
///                                        <-  nonce, HMAC("answerer", Hello, nonce)    or: Refusal
///     HMAC("caller", Hello, nonce)       ->
///                                        <-  one byte: welcome
///
/// Each side's own nonce is part of what the other authenticates, so a recording cannot be replayed; the words prevent
/// one side's proof from being sent back as the other's. The answerer reads at most 120 bytes before it knows that the
/// caller has the secret. The handshake authenticates both sides; it does not encrypt the bytes after it.
class Handshake {
 public:
  enum class State {
    underway,
    proven,  ///< answerer only: the caller has the secret, and waits for `welcome`
    done,
    failed,
  };

  /// The answerer's decision about a Hello: the secret that the caller must prove, or why the caller is refused.
  struct Outcome {
    std::optional<Digest> secret = {};
    std::string reason = {};  ///< for the answerer's log
    Refusal refusal = {};
  };
  using HelloCheck = std::function<Outcome(const Hello& hello)>;

  /// `hello` without magic and nonce.
  static Handshake call(FileDescriptor socket, Hello hello, const Digest& secret);
  static Handshake answer(FileDescriptor socket, HelloCheck check_hello);

  /// A handshake that failed before it began.
  static Handshake failed(std::string reason);

  /// Advances as far as possible without waiting.
  State advance();

  State state() const { return state_; }
  void welcome();

  /// Answerer only: whether `check_hello` has accepted the caller's Hello.
  bool greeted() const { return step_ == Step::proof; }

  /// The events to poll for.
  short events() const;
  int descriptor() const { return socket_.get(); }

  const Hello& hello() const { return hello_; }
  /// Why it failed.
  const std::string& reason() const { return reason_; }
  /// Caller only: the answerer's refusal.
  const std::optional<Refusal>& refusal() const { return refusal_; }
  /// Once it is proven or done: a secret that both sides derive from this handshake and that no other process has.
  Digest session_secret() const { return proof_of("session"); }
  FileDescriptor take_socket() { return std::move(socket_); }

 private:
  enum class Step { connecting, hello, challenge, proof, welcome };

  explicit Handshake(FileDescriptor socket) : socket_(std::move(socket)) {}

  void next();
  void read_hello();
  void read_challenge();
  void read_proof();
  void expect(Step step, std::size_t bytes);
  void send(std::string bytes) { outbox_ += bytes; }
  bool flush();
  bool fill();
  Digest proof_of(const char* side) const;
  void fail(std::string reason);

  FileDescriptor socket_;
  HelloCheck check_hello_;
  Digest secret_{};
  State state_ = State::underway;
  Step step_ = Step::connecting;
  Hello hello_;
  Digest answer_nonce_{};
  std::optional<Refusal> refusal_;
  std::string outbox_;
  std::string inbox_;
  std::size_t expected_ = 0;
  std::string reason_;
};

}  // namespace libtrain::detail
