#pragma once

#include <libtrain/data/sources/image_source.hpp>

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Writes a PNG of pictures as a loader makes them, in rows of six with white between them. Samples come in the order
/// of a Permutation by the seed, epoch 0. For training a row is one sample: the plain picture, resized and cut out of
/// the middle, then the random ones that training_images() has for epochs 0 to 4; for evaluation each picture is
/// another sample. Plain pictures are of evaluation_images() with a shorter side of 8/7 of theirs, rounded down: 256
/// for 224. The same options and data make the same file.
///
/// A sample that cannot be decoded is left out, with a warning, and another one takes its place; after 100 of them the
/// sheet ends early. Returns "path", "samples", "left_out", and "width" and "height" in pixels. Throws UsageError for a
/// sheet of more than kMaxPixels; EnvironmentError where no sample can be decoded, the storage fails, or the file
/// cannot be written, which then is as it was before.
Json write_contact_sheet(const data::ImageSource& source, const ContactSheetOptions& options);

}  // namespace libtrain::inspect
