#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <libtrain/comm/detail/tcp/secret.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>

namespace libtrain::detail {

/// What a connection is for. A pair of ranks has two of them, so that words about failures never wait behind data;
/// while ranks meet, each has one to rank 0.
enum class Channel : std::uint32_t { data, control, rendezvous };

inline constexpr std::uint64_t kHelloMagic = 0x326e696172746c54;  // "Tltrain2"

/// What the side that connects says first. Sent as it is in memory: a peer with another byte order has another magic.
struct Hello {
  std::uint64_t magic = 0;
  std::array<unsigned char, 16> group = {};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t world_size = 0;
  Channel channel = Channel::data;
  std::uint64_t arguments = 0;  ///< see Command; 0 where the job has a name
  std::uint64_t key = 0;        ///< see GroupKey::fingerprint
  Digest nonce = {};
};
static_assert(sizeof(Hello) == 88);

/// Why a caller is refused, in as many bytes as a challenge. It is not authenticated: advice, not proof.
struct Refusal {
  enum class Reason : std::uint32_t {
    silent,           ///< the connection is closed without a word
    other_job,        ///< `text` names the job that meets here
    other_key,        ///< the answerer wants another key
    other_arguments,  ///< the caller was started differently, and ranks that were not may still come
    taken,            ///< `text` is the address of the process that has come as this rank
  };

  std::uint64_t magic = kMagic;
  Reason reason = Reason::silent;
  std::array<char, 52> text = {};

  static constexpr std::uint64_t kMagic = 0x0064657375666572;  // "refused"
  static Refusal because(Reason reason, const std::string& text);
};
static_assert(sizeof(Refusal) == 64);

/// The mutual proof by which two ranks open a connection, in steps that never block:
///
///     caller                                 answerer
///     Hello                              ->
///                                        <-  nonce, HMAC("answerer", Hello, nonce)    or: Refusal
///     HMAC("caller", Hello, nonce)       ->
///                                        <-  one byte: welcome
///
/// Each side's own nonce is part of what the other authenticates, so nothing recorded can be used again; the words
/// keep one side's proof from being sent back as the other's. The answerer reads 120 bytes, no more, before it knows
/// that the caller has the secret. It proves who is there; it does not encrypt what follows.
class Handshake {
 public:
  enum class State {
    underway,
    proven,  ///< answerer only: the caller is who it says, and waits for `welcome`
    done,
    failed,
  };

  /// What an answerer thinks of a Hello: the secret that the caller must prove, or why it is not wanted.
  struct Verdict {
    std::optional<Digest> secret = {};
    std::string trouble = {};  ///< for the answerer's log
    Refusal refusal = {};
  };
  using Judge = std::function<Verdict(const Hello& hello)>;

  /// `hello` without magic and nonce.
  static Handshake call(FileDescriptor socket, Hello hello, const Digest& secret);
  static Handshake answer(FileDescriptor socket, Judge judge);

  /// One that has failed before it began.
  static Handshake failed(std::string trouble);

  /// Goes as far as it can without waiting.
  State advance();

  State state() const { return state_; }
  void welcome();

  /// Answerer only: whether a Hello has come that the judge has accepted.
  bool greeted() const { return step_ == Step::proof; }

  /// What to poll for.
  short events() const;
  int descriptor() const { return socket_.get(); }

  const Hello& hello() const { return hello_; }
  /// Why it failed.
  const std::string& trouble() const { return trouble_; }
  /// Caller only: what the answerer gave as its reason.
  const std::optional<Refusal>& refusal() const { return refusal_; }
  /// A secret that both sides have made of this handshake and no other process knows, once it is proven or done.
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
  void fail(std::string trouble);

  FileDescriptor socket_;
  Judge judge_;
  Digest secret_{};
  State state_ = State::underway;
  Step step_ = Step::connecting;
  Hello hello_;
  Digest answer_nonce_{};
  std::optional<Refusal> refusal_;
  std::string outbox_;
  std::string inbox_;
  std::size_t expected_ = 0;
  std::string trouble_;
};

}  // namespace libtrain::detail
