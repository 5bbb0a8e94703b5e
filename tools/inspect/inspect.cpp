#include <tools/inspect/inspect.hpp>

namespace libtrain::inspect {

namespace {

Report inspect_format(const InspectOptions& options) {
  switch (options.format) {
    case DataFormat::images:
      return inspect_images(options);
    case DataFormat::coco:
      return inspect_coco(options);
    case DataFormat::csv:
    case DataFormat::tsv:
      return inspect_csv(options);
    case DataFormat::json_lines:
      return inspect_json_lines(options);
    case DataFormat::idx:
      break;
  }
  return inspect_idx(options);
}

}  // namespace

Report inspect(const InspectOptions& options) {
  Report report = inspect_format(options);
  report.check = options.check;
  return report;
}

}  // namespace libtrain::inspect
