#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/hexadecimal.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

/// Throws EnvironmentError for the file `name`, which is, or should be, of `format`.
[[noreturn]] inline void fail_image(const char* format, const std::string& name, std::uint64_t offset,
                                    const std::string& expected_and_found) {
  throw EnvironmentError(text(format, " '", name, "', byte offset ", offset, ": ", expected_and_found, "."));
}

/// The same for a file that is neither a JPEG nor a PNG.
[[noreturn]] inline void fail_unknown_image(std::span<const std::byte> file, const std::string& name) {
  std::string found = "the end of the file";
  if (!file.empty()) {
    std::uint32_t first_bytes = 0;
    for (const std::byte byte : file.first(std::min<std::size_t>(file.size(), 4))) {
      first_bytes = first_bytes << 8 | std::to_integer<std::uint32_t>(byte);
    }
    found = hexadecimal(first_bytes);
  }
  fail_image("image", name, 0, text("expected the first bytes of a JPEG or a PNG, found ", found));
}

}  // namespace libtrain::data::detail
