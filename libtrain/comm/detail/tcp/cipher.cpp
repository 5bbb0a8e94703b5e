#include <libtrain/comm/detail/tcp/cipher.hpp>

#include <openssl/evp.h>

#include <cstring>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

namespace {

void require(int result) {
  if (result == 1) return;
  throw EnvironmentError("OpenSSL does not support AES-256-GCM, which TCP connections need. Install OpenSSL 3.");
}

unsigned char* bytes_at(void* memory) {
  return static_cast<unsigned char*>(memory);
}

const unsigned char* bytes_at(const void* memory) {
  return static_cast<const unsigned char*>(memory);
}

}  // namespace

void Cipher::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

Cipher::Cipher(const Digest& key, Direction direction)
    : context_(EVP_CIPHER_CTX_new()), key_(key), direction_(direction) {
  require(context_ != nullptr);
}

// Direction and number of the piece: never the same twice with one key.
std::array<unsigned char, 12> Cipher::next_nonce() {
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data(), &direction_, sizeof(direction_));
  std::memcpy(nonce.data() + sizeof(direction_), &pieces_, sizeof(pieces_));
  ++pieces_;
  return nonce;
}

Cipher::Tag Cipher::seal(const void* plain, void* sealed, std::size_t bytes) {
  int length = 0;
  Tag tag{};
  auto* const context = context_.get();
  require(EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), nullptr, key_.data(), next_nonce().data()));
  require(EVP_EncryptUpdate(context, bytes_at(sealed), &length, bytes_at(plain), static_cast<int>(bytes)));
  require(EVP_EncryptFinal_ex(context, bytes_at(sealed) + length, &length));
  require(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()), tag.data()));
  return tag;
}

bool Cipher::open(const void* sealed, void* plain, std::size_t bytes, const Tag& tag) {
  int length = 0;
  auto* const context = context_.get();
  auto expected = tag;
  require(EVP_DecryptInit_ex(context, EVP_aes_256_gcm(), nullptr, key_.data(), next_nonce().data()));
  require(EVP_DecryptUpdate(context, bytes_at(plain), &length, bytes_at(sealed), static_cast<int>(bytes)));
  require(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, static_cast<int>(expected.size()), expected.data()));
  return EVP_DecryptFinal_ex(context, bytes_at(plain) + length, &length) == 1;
}

void Cipher::seal_record(const void* plain, std::size_t bytes, std::string& records) {
  const auto length = static_cast<std::uint32_t>(bytes);
  const auto begin = records.size();
  records.resize(begin + record_bytes(bytes));
  auto* const record = records.data() + begin;
  std::memcpy(record, &length, kLengthBytes);
  const auto tag = seal(plain, record + kLengthBytes, bytes);
  std::memcpy(record + kLengthBytes + bytes, tag.data(), tag.size());
}

std::uint32_t Cipher::length_of(const char* record) {
  std::uint32_t length = 0;
  std::memcpy(&length, record, kLengthBytes);
  return length;
}

bool Cipher::open_record(char* record) {
  const auto length = length_of(record);
  auto* const sealed = record + kLengthBytes;
  Tag tag{};
  std::memcpy(tag.data(), sealed + length, tag.size());
  return open(sealed, sealed, length, tag);
}

}  // namespace libtrain::detail
