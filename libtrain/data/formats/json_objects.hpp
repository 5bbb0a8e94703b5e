#pragma once

#include <cstdint>
#include <functional>

#include <simdjson.h>

#include <libtrain/data/formats/json_window.hpp>

namespace libtrain::data::detail {

/// Reads one object, whose '{' lies at byte `offset` of the file, to its end. Throws JsonFault where it cannot; then it
/// must leave nothing of the object behind, for it may be called with the same object again.
using JsonObjectReader = std::function<void(simdjson::ondemand::object& object, std::uint64_t offset)>;

/// Reads the array of objects whose '[' lies in front of `offset`, and returns the offset behind its ']' (and behind
/// white space that may follow).
///
/// The window is filled from the present object on and cut behind its last '}'. simdjson sees that as an array. Where
/// the '}' was not the end of an object of the array (it may belong to a nested one or to a string), simdjson finds a
/// bracket or a quote missing: objects read before are kept, and the next window begins at the one that was cut. Where
/// that is the first one the window is doubled, at most to the rest of the file; then the fault is a real one.
/// Throws EnvironmentError with file and byte offset.
std::uint64_t read_json_objects(JsonWindow& window, simdjson::ondemand::parser& parser, std::uint64_t offset,
                                const JsonObjectReader& read);

}  // namespace libtrain::data::detail
