#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace libtrain::detail {

using Digest = std::array<unsigned char, 32>;

/// Bytes that cannot be guessed. Throws EnvironmentError if the system cannot provide them.
void fill_random(void* data, std::size_t bytes);

/// HMAC-SHA256 (RFC 2104) of `message`.
Digest authenticate(const Digest& secret, std::string_view message);

/// Takes the same time for any two digests, so that an attacker cannot guess one byte by byte.
bool equal_digests(const Digest& left, const Digest& right);

/// The key of a group of ranks: a name that is public, and a secret that only members have.
struct GroupKey {
  std::array<unsigned char, 16> id{};
  Digest secret{};

  static GroupKey random();

  /// The key of the part of this group called `part_id`. No new secret has to be sent.
  GroupKey derive(const std::array<unsigned char, 16>& part_id) const;
};

}  // namespace libtrain::detail
