#include <libtrain/comm/detail/tcp/secret.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

void fill_random(void* data, std::size_t bytes) {
  if (getentropy(data, bytes) != 0) {
    throw EnvironmentError(text("Cannot get random bytes for a secret (getentropy: ", std::strerror(errno),
                                "). Use a kernel with getrandom."));
  }
}

Digest authenticate(const Digest& secret, std::string_view message) {
  Digest digest{};
  unsigned int length = 0;
  const auto* made =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest.data(), &length);
  if (made == nullptr || length != digest.size()) {
    throw EnvironmentError("OpenSSL cannot compute HMAC-SHA256, which TCP connections need. Install OpenSSL 3.");
  }
  return digest;
}

bool equal_digests(const Digest& left, const Digest& right) {
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

GroupKey GroupKey::random() {
  GroupKey key;
  fill_random(key.id.data(), key.id.size());
  fill_random(key.secret.data(), key.secret.size());
  return key;
}

GroupKey GroupKey::derive(const std::array<unsigned char, 16>& part_id) const {
  std::string message = "libtrain part of a group ";
  message.append(reinterpret_cast<const char*>(part_id.data()), part_id.size());
  return {.id = part_id, .secret = authenticate(secret, message)};
}

}  // namespace libtrain::detail
