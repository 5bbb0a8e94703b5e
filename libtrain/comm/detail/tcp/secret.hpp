#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace libtrain::detail {

using Digest = std::array<unsigned char, 32>;

/// Bytes that cannot be guessed. Throws EnvironmentError where the system gives none.
void fill_random(void* data, std::size_t bytes);

/// HMAC-SHA256 (RFC 2104) of `message`.
Digest authenticate(const Digest& secret, std::string_view message);

/// Takes the same time wherever the two differ, so that a stranger cannot guess a digest byte by byte.
bool equal_digests(const Digest& left, const Digest& right);

/// Who belongs together: a name that may be seen by anyone, and a secret that only members know.
struct GroupKey {
  std::array<unsigned char, 16> id{};
  Digest secret{};

  static GroupKey random();

  /// The key of a part of this group called `part_id`, without sending a new secret to anyone.
  GroupKey derive(const std::array<unsigned char, 16>& part_id) const;
};

}  // namespace libtrain::detail
