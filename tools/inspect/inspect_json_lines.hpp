#pragma once

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Looks at a file of JSON lines: see inspect(). A line that is not one JSON object is a bad sample. Throws as
/// open_file() and File::read_at do.
Report inspect_json_lines(const InspectOptions& options);

}  // namespace libtrain::inspect
