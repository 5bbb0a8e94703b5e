#include <libtrain/data/formats/detail/tf_example.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

#include <libtrain/base/detail/protobuf_wire.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

using libtrain::detail::append_varint;
using libtrain::detail::WireField;
using libtrain::detail::WireReader;
using libtrain::detail::WireType;
using libtrain::detail::WireWriter;

// Example.features, Features.feature, and *List.value all have the number 1.
constexpr std::uint32_t kOnlyField = 1;
constexpr std::uint32_t kEntryKey = 1;
constexpr std::uint32_t kEntryValue = 2;
constexpr std::uint32_t kBytesList = 1;
constexpr std::uint32_t kFloatList = 2;
constexpr std::uint32_t kInt64List = 3;

// A field with the wrong wire type for its number counts as unknown.
bool is_bytes(const WireField& field, std::uint32_t number) {
  return field.number == number && field.type == WireType::bytes;
}

// A kind that occurs twice is appended; another kind replaces it.
template <typename List>
List& list_in(TfFeature& feature) {
  if (auto* list = std::get_if<List>(&feature)) return *list;
  return feature.emplace<List>();
}

void read_bytes_list(WireReader message, TfBytesList& list) {
  while (const auto field = message.next()) {
    if (is_bytes(*field, kOnlyField)) list.push_back(field->bytes);
  }
}

// Every number ends with its only byte below 0x80, so the list grows once, to its final size.
void read_packed_int64s(WireReader packed, std::string_view bytes, TfInt64List& list) {
  const auto is_last_byte = [](char byte) { return static_cast<std::uint8_t>(byte) < 0x80; };
  const auto count = static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), is_last_byte));
  const std::size_t before = list.size();
  list.resize(before + count);
  for (std::size_t i = before; !packed.at_end(); ++i) {
    const auto value = static_cast<std::int64_t>(packed.varint());
    list[i] = value;
  }
}

void read_int64_list(WireReader message, TfInt64List& list) {
  while (const auto field = message.next()) {
    if (is_bytes(*field, kOnlyField)) read_packed_int64s(message.nested(*field), field->bytes, list);
    if (field->number == kOnlyField && field->type == WireType::varint) {
      list.push_back(static_cast<std::int64_t>(field->value));
    }
  }
}

void read_feature(WireReader message, TfFeature& feature) {
  while (const auto field = message.next()) {
    if (is_bytes(*field, kBytesList)) read_bytes_list(message.nested(*field), list_in<TfBytesList>(feature));
    if (is_bytes(*field, kFloatList)) feature = std::monostate{};
    if (is_bytes(*field, kInt64List)) read_int64_list(message.nested(*field), list_in<TfInt64List>(feature));
  }
}

void read_entry(WireReader message, TfExample& example) {
  std::string_view name;
  TfFeature feature;
  while (const auto field = message.next()) {
    if (is_bytes(*field, kEntryKey)) name = field->bytes;
    if (is_bytes(*field, kEntryValue)) read_feature(message.nested(*field), feature);
  }
  example.features.insert_or_assign(std::string{name}, std::move(feature));
}

void read_features(WireReader message, TfExample& example) {
  while (const auto field = message.next()) {
    if (is_bytes(*field, kOnlyField)) read_entry(message.nested(*field), example);
  }
}

std::string names_of(const TfExample& example) {
  constexpr std::size_t kMax = 20;
  std::vector<std::string_view> names;
  for (const auto& [name, feature] : example.features) {
    if (names.size() == kMax) break;
    names.push_back(name);
  }
  if (names.empty()) return "there are no features";
  return text("there are '", join(names, "', '"), "'", example.features.size() > kMax ? " and others" : "");
}

std::string contents_of(const TfFeature& feature) {
  if (const auto* bytes = std::get_if<TfBytesList>(&feature)) return text(bytes->size(), " bytes values");
  if (const auto* numbers = std::get_if<TfInt64List>(&feature)) return text(numbers->size(), " int64 values");
  return "a list of floats or nothing";
}

template <typename List>
typename List::value_type only_value(const TfExample& example, std::string_view name, std::string_view kind,
                                     std::string_view source) {
  const auto place = example.features.find(name);
  if (place == example.features.end()) {
    throw EnvironmentError(text(source, ": expected a feature '", name, "', found none; ", names_of(example), "."));
  }
  const auto* list = std::get_if<List>(&place->second);
  if (list == nullptr || list->size() != 1) {
    throw EnvironmentError(text(source, ": expected one ", kind, " value in the feature '", name, "', found ",
                                contents_of(place->second), "."));
  }
  return list->front();
}

std::string serialize_feature(const TfFeature& feature) {
  WireWriter list;
  WireWriter message;
  if (const auto* values = std::get_if<TfBytesList>(&feature)) {
    for (const auto value : *values) list.bytes(kOnlyField, value);
    message.bytes(kBytesList, list.message());
  } else if (const auto* numbers = std::get_if<TfInt64List>(&feature)) {
    std::string packed;
    for (const std::int64_t value : *numbers) append_varint(packed, static_cast<std::uint64_t>(value));
    if (!packed.empty()) list.bytes(kOnlyField, packed);
    message.bytes(kInt64List, list.message());
  }
  return message.take();
}

}  // namespace

std::string_view TfExample::only_bytes(std::string_view name, std::string_view source) const {
  return only_value<TfBytesList>(*this, name, "bytes", source);
}

std::int64_t TfExample::only_int64(std::string_view name, std::string_view source) const {
  return only_value<TfInt64List>(*this, name, "int64", source);
}

TfExample parse_tf_example(std::string_view record, std::string_view source) {
  TfExample example;
  WireReader message{record, source};
  while (const auto field = message.next()) {
    if (is_bytes(*field, kOnlyField)) read_features(message.nested(*field), example);
  }
  return example;
}

std::string serialize_tf_example(const TfExample& example) {
  WireWriter features;
  for (const auto& [name, feature] : example.features) {
    WireWriter entry;
    entry.bytes(kEntryKey, name);
    entry.bytes(kEntryValue, serialize_feature(feature));
    features.bytes(kOnlyField, entry.message());
  }
  WireWriter message;
  message.bytes(kOnlyField, features.message());
  return message.take();
}

}  // namespace libtrain::data::detail
