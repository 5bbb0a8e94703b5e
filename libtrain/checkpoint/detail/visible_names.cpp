#include <libtrain/checkpoint/detail/visible_names.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

std::map<std::string, std::size_t> visible_names(const std::vector<TensorInfo>& tensors, const std::string& path,
                                                 const std::string& prefix, const std::vector<NameChange>& rename) {
  std::map<std::string, std::size_t> names;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const auto& stored = tensors[index].name;
    if (!stored.starts_with(prefix) || stored.starts_with("::")) continue;
    auto name = stored.substr(prefix.size());
    const auto change = std::ranges::find_if(rename, [&](const auto& each) { return name.starts_with(each.from); });
    if (change != rename.end()) name = change->to + name.substr(change->from.size());
    const auto [same, is_new] = names.emplace(name, index);
    if (!is_new) {
      throw UsageError(text("Tensors '", tensors[same->second].name, "' and '", stored, "' of '", path,
                            "' are both called '", name, "' after 'rename'. Rename one of them otherwise."));
    }
  }
  return names;
}

}  // namespace libtrain::detail
