#include <libtrain/launch/detail/slurm_lists.hpp>

#include <algorithm>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/host.hpp>
#include <libtrain/launch/detail/launcher_variables.hpp>

namespace libtrain::detail {
namespace {

constexpr std::size_t kMaxListBytes = 1 << 20;

class Expander {
 public:
  explicit Expander(std::string_view list) : list_(list) {}

  std::vector<std::string> expand() {
    if (list_.size() > kMaxListBytes) refuse("is longer than 1 MiB");
    std::vector<std::string> hosts;
    do {
      const auto expanded = expand_name();
      if (hosts.size() + expanded.size() > kMaxHosts) refuse("names more than 65536 hosts");
      hosts.insert(hosts.end(), expanded.begin(), expanded.end());
    } while (accept(','));
    return hosts;
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    throw EnvironmentError(text("The Slurm node list ", in_quotes(list_), " ", why, " at character ", position_ + 1,
                                ". Set it to a list such as n[001-004,7],login."));
  }

  bool at_end() const { return position_ == list_.size(); }

  bool accept(char c) {
    if (at_end() || list_[position_] != c) return false;
    ++position_;
    return true;
  }

  /// Text and [ranges] in turn, up to a comma that is outside brackets.
  std::vector<std::string> expand_name() {
    std::vector<std::string> names{""};
    while (!at_end() && list_[position_] != ',') {
      const auto pieces = accept('[') ? expand_ranges() : std::vector<std::string>{literal()};
      if (names.size() * pieces.size() > kMaxHosts) refuse("names more than 65536 hosts");
      std::vector<std::string> longer;
      longer.reserve(names.size() * pieces.size());
      for (const auto& name : names) {
        for (const auto& piece : pieces) longer.push_back(name + piece);
      }
      names = std::move(longer);
      if (names.back().size() > kMaxHostName) refuse("has a name that is too long");
    }
    if (!is_host_name(names.front())) refuse("has a name that is not a host name");
    return names;
  }

  std::string literal() {
    const auto end = std::min(list_.find_first_of("[,", position_), list_.size());
    const auto part = list_.substr(position_, end - position_);
    if (part.find(']') != std::string_view::npos) refuse("has a ] without [");
    position_ = end;
    return std::string{part};
  }

  /// The part after '[': "001-004,7]".
  std::vector<std::string> expand_ranges() {
    std::vector<std::string> numbers;
    do {
      append_range(numbers);
    } while (accept(','));
    if (!accept(']')) refuse("has a [ without ]");
    return numbers;
  }

  void append_range(std::vector<std::string>& numbers) {
    const auto first = digits();
    const auto last = accept('-') ? digits() : first;
    const auto low = parse_integer(first, 0, 999'999'999'999);
    const auto high = parse_integer(last, 0, 999'999'999'999);
    if (!low || !high) refuse("has a number that is missing or too long");
    if (*low > *high) refuse("has a range whose end is below its begin");
    if (*high - *low >= static_cast<long long>(kMaxHosts - std::min(kMaxHosts, numbers.size()))) {
      refuse("names more than 65536 hosts");
    }
    for (auto number = *low; number <= *high; ++number) {
      auto padded = std::to_string(number);
      if (padded.size() < first.size()) padded.insert(0, first.size() - padded.size(), '0');
      numbers.push_back(std::move(padded));
    }
  }

  std::string_view digits() {
    const auto end = std::min(list_.find_first_not_of("0123456789", position_), list_.size());
    const auto part = list_.substr(position_, end - position_);
    position_ = end;
    return part.size() > 12 ? std::string_view{} : part;
  }

  std::string_view list_;
  std::size_t position_ = 0;
};

}  // namespace

std::vector<std::string> parse_slurm_node_list(std::string_view list) {
  return Expander{list}.expand();
}

namespace {

[[noreturn]] void refuse(std::string_view list, std::string_view why) {
  throw EnvironmentError(
      text("The Slurm list of tasks per node ", in_quotes(list), " ", why, ". Set it to a list such as 8(x4),2."));
}

}  // namespace

std::vector<int> parse_slurm_tasks_per_node(std::string_view list) {
  std::vector<int> tasks;
  std::size_t start = 0;
  while (start <= list.size()) {
    const auto comma = std::min(list.find(',', start), list.size());
    auto item = list.substr(start, comma - start);
    long long repeat = 1;
    if (const auto bracket = item.find("(x"); bracket != std::string_view::npos) {
      const auto digits = item.substr(bracket + 2);
      const auto count = parse_integer(digits.substr(0, digits.size() - 1), 1, kMaxHosts);
      if (!digits.ends_with(')') || !count) refuse(list, "has a repetition that is not (xN)");
      repeat = *count;
      item = item.substr(0, bracket);
    }
    const auto count = parse_integer(item, 0, kMaxWorldSize);
    if (!count) refuse(list, "has an item that is not a number of tasks");
    if (tasks.size() + static_cast<std::size_t>(repeat) > kMaxHosts) refuse(list, "names more than 65536 nodes");
    tasks.insert(tasks.end(), static_cast<std::size_t>(repeat), static_cast<int>(*count));
    start = comma + 1;
  }
  return tasks;
}

}  // namespace libtrain::detail
