#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace libtrain {

/// One line of metrics.jsonl: an event name, and members in the order in which they were first set.
///
///   writer.write(Record{"step"}.set("step", 12).set("loss", loss).set("lr", 0.1));
///
/// Setting a key again replaces its value. Strings pass through `redact`; those whose key looks like a secret are
/// masked entirely; bytes that are not UTF-8 become U+FFFD. NaN and infinities become null, because JSON cannot
/// represent them (`non_finite` lists them); every other double is written so that it reads back exactly.
class Record {
 public:
  /// Throws UsageError for an empty name.
  explicit Record(std::string_view event);

  /// Throw UsageError for an empty key and for "event", "time" and "run_id", which the record and the writer set
  /// themselves.
  Record& set(std::string_view key, bool value);
  Record& set(std::string_view key, double value);
  Record& set(std::string_view key, std::string_view value);
  Record& set(std::string_view key, const char* value) { return set(key, std::string_view{value}); }
  Record& set(std::string_view key, const std::string& value) { return set(key, std::string_view{value}); }
  Record& set(std::string_view key, std::nullptr_t);
  Record& set(std::string_view key, const std::vector<double>& values);
  Record& set(std::string_view key, const std::vector<std::int64_t>& values);
  Record& set(std::string_view key, const std::vector<std::string>& values);

  template <std::signed_integral Integer>
  Record& set(std::string_view key, Integer value) {
    return set_signed(key, static_cast<std::int64_t>(value));
  }

  template <std::unsigned_integral Integer>
    requires(!std::same_as<Integer, bool>)
  Record& set(std::string_view key, Integer value) {
    return set_unsigned(key, static_cast<std::uint64_t>(value));
  }

  /// A member that is an object, such as the configuration in a `run` event.
  Record& set(std::string_view key, const std::vector<std::pair<std::string, std::string>>& members);

  /// An object with the members of `object`; its event name is left out.
  Record& set(std::string_view key, const Record& object);

  const std::string& event() const { return event_; }

  /// The keys whose numbers are NaN or infinity. Lists are not checked: NaN in a list may be a gap, such as the
  /// accuracy of a class without samples.
  std::vector<std::string> non_finite() const;

  /// The line with its newline, with "time" set to `time_s` (seconds since the epoch, UTC) and, unless `run_id` is
  /// empty, "run_id".
  std::string line(double time_s, std::string_view run_id = {}) const;

 private:
  Record& set_signed(std::string_view key, std::int64_t value);
  Record& set_unsigned(std::string_view key, std::uint64_t value);
  Record& set_json(std::string_view key, std::string json, bool is_finite = true);
  std::string members_as_json() const;

  struct Member {
    std::string key;
    std::string json;
    bool is_finite;
  };

  std::string event_;
  std::vector<Member> members_;
};

}  // namespace libtrain
