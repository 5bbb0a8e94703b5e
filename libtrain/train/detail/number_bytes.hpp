#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace libtrain::detail {

/// Numbers as bytes, and back, for the control messages of a Communicator: some communicators accept only tensors on a
/// GPU. A number keeps its bits.
std::string to_bytes(const std::vector<double>& numbers);

/// Throws CommunicationError for bytes that to_bytes() does not return.
std::vector<double> numbers_of(std::string_view bytes);

/// Numbers with names of any kind, in their order.
using NamedNumbers = std::vector<std::pair<std::string, double>>;
std::string to_bytes(const NamedNumbers& numbers);
NamedNumbers named_numbers_of(std::string_view bytes);

}  // namespace libtrain::detail
