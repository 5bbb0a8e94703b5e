#pragma once

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Looks at a folder of images, or of shards that hold them: see inspect(). Writes the contact sheet first. Images of
/// other formats than JPEG and PNG are counted rather than refused; classes without images are counted, and named in
/// the refusal. Throws as open_storage(), open_image_source() and write_contact_sheet() do.
Report inspect_images(const InspectOptions& options);

}  // namespace libtrain::inspect
