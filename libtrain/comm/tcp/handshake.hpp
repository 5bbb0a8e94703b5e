#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <libtrain/comm/tcp/secret.hpp>
#include <libtrain/comm/tcp/socket.hpp>

namespace libtrain::detail {

/// A pair of ranks has two connections, so that words about failures never wait behind data.
enum class Channel : std::uint32_t { data, control };

inline constexpr std::uint64_t kHelloMagic = 0x316e696172746c54;  // "Tltrain1"

/// What the side that connects says first. Sent as it is in memory: a peer with another byte order has another magic.
struct Hello {
  std::uint64_t magic = 0;
  std::array<unsigned char, 16> group = {};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Channel channel = Channel::data;
  std::uint32_t unused = 0;
  Digest nonce = {};
};
static_assert(sizeof(Hello) == 72);

/// The mutual proof by which two ranks open a connection, in steps that never block:
///
///     caller                                 answerer
///     Hello                              ->
///                                        <-  nonce, HMAC("answerer", Hello, nonce)
///     HMAC("caller", Hello, nonce)       ->
///                                        <-  one byte: welcome
///
/// Each side's own nonce is part of what the other authenticates, so nothing recorded can be used again; the words
/// keep one side's proof from being sent back as the other's. The answerer reads 104 bytes, no more, before it knows
/// that the caller has the secret. It proves who is there; it does not encrypt what follows.
class Handshake {
 public:
  enum class State {
    underway,
    proven,  ///< answerer only: the caller is who it says, and waits for `welcome`
    done,
    failed,
  };

  static Handshake call(FileDescriptor socket, const GroupKey& key, int from, int to, Channel channel);
  static Handshake answer(FileDescriptor socket, const GroupKey& key, int self, int world_size);

  /// One that has failed before it began.
  static Handshake failed(std::string trouble);

  /// Goes as far as it can without waiting.
  State advance();

  State state() const { return state_; }
  void welcome();

  /// Answerer only: whether a Hello has come that names this group and rank.
  bool greeted() const { return step_ == Step::proof; }

  /// What to poll for.
  short events() const;
  int descriptor() const { return socket_.get(); }

  const Hello& hello() const { return hello_; }
  /// Why it failed.
  const std::string& trouble() const { return trouble_; }
  FileDescriptor take_socket() { return std::move(socket_); }

 private:
  enum class Step { connecting, hello, challenge, proof, welcome };

  Handshake(FileDescriptor socket, const GroupKey& key) : socket_(std::move(socket)), key_(key) {}

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
  GroupKey key_;
  int self_ = 0;
  int world_size_ = 0;
  State state_ = State::underway;
  Step step_ = Step::connecting;
  Hello hello_;
  Digest answer_nonce_{};
  std::string outbox_;
  std::string inbox_;
  std::size_t expected_ = 0;
  std::string trouble_;
};

}  // namespace libtrain::detail
