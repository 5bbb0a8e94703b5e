#include <libtrain/train/detail/number_bytes.hpp>

#include <cstddef>
#include <cstring>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

namespace {

// Removes `length` bytes from the front of a message.
std::string_view take(std::string_view& bytes, std::size_t length) {
  if (length > bytes.size()) {
    throw CommunicationError("A rank sent numbers that cannot be read. Run the same build of libtrain on every rank.");
  }
  const auto taken = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return taken;
}

template <typename Value>
void append(std::string& bytes, Value value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename Value>
Value take_value(std::string_view& bytes) {
  Value value{};
  std::memcpy(&value, take(bytes, sizeof value).data(), sizeof value);
  return value;
}

}  // namespace

std::string to_bytes(const std::vector<double>& numbers) {
  std::string bytes;
  for (const auto number : numbers) append(bytes, number);
  return bytes;
}

std::vector<double> numbers_of(std::string_view bytes) {
  std::vector<double> numbers;
  while (!bytes.empty()) numbers.push_back(take_value<double>(bytes));
  return numbers;
}

std::string to_bytes(const NamedNumbers& numbers) {
  std::string bytes;
  for (const auto& [name, number] : numbers) {
    append(bytes, name.size());
    bytes += name;
    append(bytes, number);
  }
  return bytes;
}

NamedNumbers named_numbers_of(std::string_view bytes) {
  NamedNumbers numbers;
  while (!bytes.empty()) {
    std::string name{take(bytes, take_value<std::size_t>(bytes))};
    const auto number = take_value<double>(bytes);
    numbers.emplace_back(std::move(name), number);
  }
  return numbers;
}

}  // namespace libtrain::detail
