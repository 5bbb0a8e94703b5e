#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain {

/// The element types of tensors in files: those of the safetensors format, in its order, which is one of ascending
/// alignment, and complex128, which only `.pth` files have.
enum class ElementType : std::uint8_t {
  boolean,
  float4,
  float6_e2m3,
  float6_e3m2,
  uint8,
  int8,
  float8_e5m2,
  float8_e4m3,
  float8_e8m0,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  int16,
  uint16,
  float16,
  bfloat16,
  int32,
  uint32,
  float32,
  complex64,
  float64,
  int64,
  uint64,
  complex128,
};

/// The name in safetensors files: "F32", "BF16", "BOOL". That of complex128 would be "C128".
std::string_view to_string(ElementType type);

/// The type that safetensors files call `name`; std::nullopt for other names.
std::optional<ElementType> element_type(std::string_view name);

/// The bits of an element: 4, 6, or a multiple of 8.
unsigned bits_of(ElementType type);

/// What a file says of one of its tensors.
struct TensorInfo {
  std::string name = {};
  ElementType type = ElementType::float32;
  std::vector<std::int64_t> shape = {};  ///< empty for a scalar; no number is negative
};

/// Replaces the beginning of a name: {"module.", ""} removes it, {"", "backbone."} puts it in front.
struct NameChange {
  std::string from = {};
  std::string to = {};
};

/// The bytes of a contiguous tensor. std::nullopt if they do not fit 63 bits, if a number of the shape is negative, or
/// if the last byte would be used in part.
std::optional<std::uint64_t> contiguous_bytes(ElementType type, std::span<const std::int64_t> shape);

}  // namespace libtrain
