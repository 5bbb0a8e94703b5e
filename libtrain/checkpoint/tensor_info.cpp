#include <libtrain/checkpoint/tensor_info.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace libtrain {

namespace {

struct ElementTraits {
  std::string_view name;
  unsigned bits;
};

// In the order of ElementType.
constexpr std::array<ElementTraits, 23> kElements{{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},        {"C128", 128},
}};
static_assert(kElements.size() == static_cast<std::size_t>(ElementType::complex128) + 1);

const ElementTraits& traits_of(ElementType type) {
  return kElements[static_cast<std::size_t>(type)];
}

}  // namespace

std::string_view to_string(ElementType type) {
  return traits_of(type).name;
}

std::optional<ElementType> element_type(std::string_view name) {
  const auto* const found = std::ranges::find(kElements, name, &ElementTraits::name);
  const auto type = static_cast<ElementType>(found - kElements.begin());
  if (found == kElements.end() || type == ElementType::complex128) return std::nullopt;
  return type;
}

unsigned bits_of(ElementType type) {
  return traits_of(type).bits;
}

std::optional<std::uint64_t> contiguous_bytes(ElementType type, std::span<const std::int64_t> shape) {
  std::int64_t bits = bits_of(type);
  std::int64_t elements = 1;
  // As in the reference reader, an overflow counts even if a later number is 0.
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  if (__builtin_mul_overflow(elements, bits, &bits) || bits % 8 != 0) return std::nullopt;
  return static_cast<std::uint64_t>(bits / 8);
}

}  // namespace libtrain
