#include <tools/inspect/report.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/percentile.hpp>

namespace libtrain::inspect {

namespace {

constexpr std::size_t kShownEntries = 10;  // of a list

// File names and class names may contain escape sequences of terminals, or line breaks.
std::string printable(std::string line) {
  const auto is_control = [](char character) {
    const auto code = static_cast<unsigned char>(character);
    return code < 0x20 || code == 0x7f;
  };
  std::replace_if(line.begin(), line.end(), is_control, '?');
  return line;
}

std::string words_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string value_of(const Json& scalar) {
  if (scalar.is_string()) return printable(scalar.get<std::string>());
  return scalar.is_null() ? "none" : scalar.dump();
}

bool is_flat(const Json& value) {
  return std::all_of(value.begin(), value.end(), [](const Json& member) { return member.is_primitive(); });
}

std::string line_of(const Json& object) {
  std::vector<std::string> members;
  for (const auto& [key, value] : object.items()) members.push_back(text(words_of(key), ' ', value_of(value)));
  return join(members, ", ");
}

std::string numbers_of(const Json& array) {
  std::vector<std::string> numbers;
  for (const auto& number : array) numbers.push_back(value_of(number));
  return join(numbers, ", ");
}

class FactWriter {
 public:
  void write(const Json& object, const std::string& indent) {
    for (const auto& [key, value] : object.items()) write(words_of(key), value, indent);
  }

  std::string take() { return lines_.str(); }

 private:
  void write(const std::string& name, const Json& value, const std::string& indent) {
    lines_ << indent << name;
    if (value.is_primitive()) {
      lines_ << ' ' << value_of(value) << '\n';
    } else if (value.empty()) {
      lines_ << " none\n";
    } else if (value.is_object() && is_flat(value)) {
      lines_ << ": " << line_of(value) << '\n';
    } else if (value.is_object()) {
      lines_ << '\n';
      write(value, indent + "  ");
    } else if (value.front().is_number()) {
      lines_ << ": " << numbers_of(value) << '\n';
    } else {
      lines_ << '\n';
      write_list(value, indent + "  ");
    }
  }

  void write_list(const Json& list, const std::string& indent) {
    const std::size_t shown = std::min(list.size(), kShownEntries);
    for (std::size_t i = 0; i < shown; ++i) {
      lines_ << indent << (list[i].is_object() ? line_of(list[i]) : value_of(list[i])) << '\n';
    }
    if (shown < list.size()) lines_ << indent << "and " << list.size() - shown << " more, which --json lists\n";
  }

  detail::OutputText lines_;
};

std::string describe(const BadSample& sample) {
  const std::string line = text("bad sample ", sample.index, ": ", sample.origin.path, ", byte offset ",
                                sample.origin.offset, ": ", sample.reason);
  return printable(line) + '\n';
}

Json json_of(const BadSample& sample) {
  Json json = Json::object();
  json["index"] = sample.index;
  json["path"] = sample.origin.path;
  json["offset"] = sample.origin.offset;
  json["reason"] = sample.reason;
  return json;
}

}  // namespace

Json spread(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  Json json = Json::object();
  json["min"] = static_cast<std::int64_t>(*least);
  json["median"] = detail::percentile(values, 0.5);
  json["max"] = static_cast<std::int64_t>(*greatest);
  return json;
}

std::string to_text(const Report& report) {
  FactWriter writer;
  writer.write(report.facts, "");
  std::string lines = writer.take() + text("check ", name_of(report.check), '\n');
  if (!report.refusal.empty()) lines += text("refused: ", printable(report.refusal), '\n');
  for (const auto& sample : report.bad_samples) lines += describe(sample);
  if (report.check != Check::none) lines += text("bad samples ", report.bad_samples.size(), '\n');
  return lines;
}

std::string to_json_line(const Report& report) {
  Json json = report.facts;
  if (!report.refusal.empty()) json["refusal"] = report.refusal;
  json["check"] = name_of(report.check);
  json["bad_samples"] = nullptr;
  if (report.check != Check::none) {
    Json bad_samples = Json::array();
    for (const auto& sample : report.bad_samples) bad_samples.push_back(json_of(sample));
    json["bad_samples"] = std::move(bad_samples);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace libtrain::inspect
