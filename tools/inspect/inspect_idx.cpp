#include <tools/inspect/inspect.hpp>

#include <algorithm>
#include <cstdint>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/idx.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/detail/location.hpp>

#include <tools/inspect/class_facts.hpp>

namespace libtrain::inspect {

namespace {

Json values_of(const data::IdxFile& file) {
  if (file.bytes.empty()) return nullptr;
  const auto [least, greatest] = std::minmax_element(file.bytes.begin(), file.bytes.end());
  Json json = Json::object();
  json["min"] = int{*least};
  json["max"] = int{*greatest};
  return json;
}

}  // namespace

Report inspect_idx(const InspectOptions& options) {
  const auto location = data::detail::parse_location(options.data);
  if (location.kind != data::detail::StorageKind::local) {
    throw UsageError(text("'", location.name, "' is an IDX file in an object store, expected one on a local disk. ",
                          "Download it."));
  }
  const auto file = data::read_idx(location.path);
  Report report;
  report.facts["data"] = location.name;
  report.facts["format"] = "IDX";
  report.facts["bytes"] = data::detail::open_local_file(location.path)->size();
  report.facts["shape"] = file.shape;
  report.facts["values"] = values_of(file);
  if (file.shape.size() == 1 && !file.bytes.empty()) {
    LabelCounts labels;
    for (const auto value : file.bytes) ++labels[std::int64_t{value}];
    report.facts["classes"] = class_facts(labels, {}, "samples");
  }
  return report;
}

}  // namespace libtrain::inspect
