#pragma once

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Looks at an IDX file, whose values are taken for labels where it has one dimension: see inspect(). Throws as
/// read_idx() does, and UsageError for a file that is not on a local disk.
Report inspect_idx(const InspectOptions& options);

}  // namespace libtrain::inspect
