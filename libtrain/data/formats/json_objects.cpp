#include <libtrain/data/formats/json_objects.hpp>

#include <string_view>

#include <libtrain/data/formats/json_fault.hpp>
#include <libtrain/data/formats/json_values.hpp>

namespace libtrain::data::detail {

namespace {

namespace ondemand = simdjson::ondemand;

// How far one window went.
struct Pass {
  enum class Outcome {
    closed,  // the array ends within the window; `next` lies behind its ']'
    done,    // all of the window up to `next` was read
    cut,     // the object at `next` does not end within the window
    larger,  // nor does the first one
  };
  Outcome outcome = Outcome::done;
  std::uint64_t next = 0;
  bool any = false;  // whether an object was read
};

void read_elements(JsonWindow& window, ondemand::array& array, const JsonObjectReader& read, Pass& pass) {
  for (auto element : array) {
    if (element.error() != simdjson::SUCCESS) throw data_fault("',' or ']' behind an object");
    ondemand::value value = element.value_unsafe();
    const char* const begin = json_begin(value);
    pass.next = window.offset_of(begin);
    ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) throw data_fault("an object", begin);
    try {
      read(object, pass.next);
    } catch (JsonFault& fault) {
      if (fault.at == nullptr && fault.kind == JsonFault::Kind::data) fault.at = begin;
      throw;
    }
    pass.any = true;
  }
}

// Reads the first `length` bytes of the window as the elements of an array.
void read_bracketed(JsonWindow& window, ondemand::parser& parser, std::size_t length, const JsonObjectReader& read,
                    Pass& pass) {
  const JsonWindow::Bracketed json{window, length};
  const std::string_view visible{json.data(), json.size()};
  if (parser.capacity() < window.room() + 2) {
    const auto error = parser.allocate(window.room() + 2);
    if (error != simdjson::SUCCESS) throw structural_fault(error, visible);
  }
  ondemand::document document;
  if (const auto error = parser.iterate(json.data(), json.size(), json.allocated()).get(document);
      error != simdjson::SUCCESS) {
    throw structural_fault(error, visible);
  }
  try {
    ondemand::array array;
    if (document.get_array().get(array) != simdjson::SUCCESS) throw JsonFault{.expected = "an array of objects"};
    read_elements(window, array, read, pass);
  } catch (JsonFault& fault) {
    if (fault.at == nullptr) fault.at = json_location(document);
    throw;
  }
  // Only the bracket that was put there comes last.
  if (const char* behind = json_location(document); behind != nullptr) {
    pass.outcome = Pass::Outcome::closed;
    pass.next = window.offset_of(behind);
  } else {
    pass.next = window.begin() + length;
  }
}

Pass read_window(JsonWindow& window, ondemand::parser& parser, const JsonObjectReader& read) {
  const std::string_view text = window.text();
  if (text.empty() || text.front() != '{') window.fail(window.begin(), "an object");
  const std::size_t last = text.rfind('}');
  if (last == std::string_view::npos) {
    if (window.reaches_end()) window.fail(window.size(), "'}'");
    return {.outcome = Pass::Outcome::larger};
  }
  Pass pass{.next = window.begin()};
  try {
    read_bracketed(window, parser, last + 1, read, pass);
  } catch (const JsonFault& fault) {
    if (fault.kind == JsonFault::Kind::data || window.reaches_end()) {
      window.fail(fault.at != nullptr ? window.offset_of(fault.at) : window.begin() + last + 1, fault.expected);
    }
    pass.outcome = pass.any ? Pass::Outcome::cut : Pass::Outcome::larger;
  }
  return pass;
}

}  // namespace

std::uint64_t read_json_objects(JsonWindow& window, ondemand::parser& parser, std::uint64_t offset,
                                const JsonObjectReader& read) {
  offset = window.skip_space(offset);
  if (window.at_or_end(offset) == ']') return offset + 1;
  for (;;) {
    window.load(offset);
    Pass pass = read_window(window, parser, read);
    while (pass.outcome == Pass::Outcome::larger) {
      window.grow();
      pass = read_window(window, parser, read);
    }
    if (pass.outcome == Pass::Outcome::closed) return pass.next;
    offset = pass.next;
    if (pass.outcome == Pass::Outcome::cut) continue;

    offset = window.skip_space(offset);
    const char separator = window.at_or_end(offset);
    if (separator == ']') return offset + 1;
    if (separator != ',') window.fail(offset, "',' or ']' behind an object");
    offset = window.skip_space(offset + 1);
  }
}

}  // namespace libtrain::data::detail
