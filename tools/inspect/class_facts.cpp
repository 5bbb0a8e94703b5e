#include <tools/inspect/class_facts.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace libtrain::inspect {

namespace {

constexpr std::size_t kShownClasses = 5;

class ClassDescriber {
 public:
  ClassDescriber(const LabelCounts& counts, const std::vector<std::string>& names, const std::string& unit)
      : counts_(counts), names_(names), unit_(unit) {}

  Json counted(const LabelCounts::value_type& entry) const {
    Json json = named(static_cast<std::uint64_t>(entry.first));
    json[unit_] = entry.second;
    return json;
  }

  Json missing() const {
    const std::uint64_t above_last = counts_.empty() ? 0 : static_cast<std::uint64_t>(counts_.rbegin()->first) + 1;
    const std::uint64_t end = std::max<std::uint64_t>(above_last, names_.size());
    Json json = Json::object();
    json["count"] = end - counts_.size();
    json["first"] = first_missing(end);
    return json;
  }

 private:
  Json named(std::uint64_t label) const {
    Json json = Json::object();
    json["label"] = label;
    if (label < names_.size()) json["name"] = names_[static_cast<std::size_t>(label)];
    return json;
  }

  Json first_missing(std::uint64_t end) const {
    Json first = Json::array();
    std::uint64_t expected = 0;
    const auto add_up_to = [&](std::uint64_t label) {
      for (; expected < label && first.size() < kShownClasses; ++expected) first.push_back(named(expected));
      expected = label + 1;
    };
    for (const auto& entry : counts_) add_up_to(static_cast<std::uint64_t>(entry.first));
    add_up_to(end);
    return first;
  }

  const LabelCounts& counts_;
  const std::vector<std::string>& names_;
  const std::string& unit_;
};

}  // namespace

Json class_facts(const LabelCounts& counts, const std::vector<std::string>& names, const std::string& unit) {
  const ClassDescriber describer(counts, names, unit);
  Json facts = Json::object();
  facts["count"] = counts.size();
  if (!counts.empty()) {
    const auto by_count = [](const auto& left, const auto& right) { return left.second < right.second; };
    const auto smallest = std::min_element(counts.begin(), counts.end(), by_count);
    const auto largest = std::max_element(counts.begin(), counts.end(), by_count);
    facts["smallest"] = describer.counted(*smallest);
    facts["largest"] = describer.counted(*largest);
    facts["largest_over_smallest"] = static_cast<double>(largest->second) / static_cast<double>(smallest->second);
  }
  facts["missing"] = describer.missing();
  Json all = Json::array();
  for (const auto& entry : counts) all.push_back(describer.counted(entry));
  facts["all"] = std::move(all);
  return facts;
}

}  // namespace libtrain::inspect
