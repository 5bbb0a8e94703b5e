#include <libtrain/base/environment.hpp>

#include <unistd.h>

namespace libtrain {

Environment Environment::of_process() {
  std::map<std::string, std::string, std::less<>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view assignment{*entry};
    const auto equals = assignment.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(assignment.substr(0, equals), assignment.substr(equals + 1));
  }
  return Environment{std::move(variables)};
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::vector<std::pair<std::string, std::string>> Environment::with_prefix(std::string_view prefix) const {
  std::vector<std::pair<std::string, std::string>> found;
  for (auto at = variables_.lower_bound(prefix); at != variables_.end() && at->first.starts_with(prefix); ++at) {
    if (!at->second.empty()) found.emplace_back(*at);
  }
  return found;
}

}  // namespace libtrain
