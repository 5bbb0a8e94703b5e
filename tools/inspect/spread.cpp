#include <tools/inspect/spread.hpp>

#include <algorithm>
#include <cstdint>

#include <libtrain/observe/detail/percentile.hpp>

namespace libtrain::inspect {

Json spread(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  Json json = Json::object();
  json["min"] = static_cast<std::int64_t>(*least);
  json["median"] = detail::percentile(values, 0.5);
  json["max"] = static_cast<std::int64_t>(*greatest);
  return json;
}

}  // namespace libtrain::inspect
