#pragma once

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Looks at a CSV file with a header in its first row, or a TSV file: see inspect(). Throws as open_file() does, and as
/// CsvFile for the first row that is not in order: behind it no row can be told from another.
Report inspect_csv(const InspectOptions& options);

}  // namespace libtrain::inspect
