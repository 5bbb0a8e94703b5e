#pragma once

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Looks at a COCO instances file, as it is read for training: see inspect(). Throws as open_file() and read_coco() do.
Report inspect_coco(const InspectOptions& options);

}  // namespace libtrain::inspect
