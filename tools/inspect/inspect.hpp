#pragma once

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Looks at the data and returns what they are. The facts, of which those marked * need a check other than none:
///
///   all           data (its location, without secrets), format, bytes (of the files that hold samples)
///   images        samples; shards (their number), or unsupported (image files of formats that are not read); classes
///                 (see class_facts; of shards *); widths and heights * (min, median, max); kinds * (how many images
///                 are jpeg_baseline, jpeg_progressive, png, and so on); small_images * and duplicates * (images with
///                 the bytes of an earlier one), their count and the first five; contact_sheet
///   COCO          images, images_without_annotations, images_to_train_on, widths, heights, annotations, crowds, masks,
///                 categories (see class_facts), left_out and odd_ids (see CocoFindings)
///   CSV, TSV      rows, columns (name, empty_fields *)
///   JSON lines    rows, columns * by name (name, empty_fields: null or "", rows_without)
///   IDX           shape, values (min, max), classes where there is one dimension
///
/// An image that cannot be read or, as far as the check goes, decoded, and a line that is no JSON object, are bad
/// samples. Shows its progress on standard error where that is a terminal. Throws EnvironmentError for data that cannot
/// be opened and for a storage that fails, UsageError for options that do not fit them.
Report inspect(const InspectOptions& options);

}  // namespace libtrain::inspect
