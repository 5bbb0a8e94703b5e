#pragma once

#include <libtrain/data/sources/image_source.hpp>

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Writes a PNG of pictures as a loader produces them, in rows of six with white gaps. Samples are in the order of a
/// Permutation by the seed, epoch 0. For training a row is one sample: the plain picture, then the random ones that
/// training_images() produces in epochs 0 to 4; for evaluation each picture is another sample. Plain pictures are those
/// of evaluation_images(), resized to a shorter side of 8/7 of `side`, rounded down (256 for 224). The same options and
/// data give the same file.
///
/// A sample that cannot be decoded is replaced by another one, with a warning; after 100 such samples the sheet ends
/// early. Returns "path", "samples", "left_out", and "width" and "height" in pixels. Throws UsageError for a sheet of
/// more than kMaxPixels; EnvironmentError if no sample can be decoded, the storage fails, or the file cannot be written
/// (an existing file is then unchanged).
Json write_contact_sheet(const data::ImageSource& source, const ContactSheetOptions& options);

}  // namespace libtrain::inspect
