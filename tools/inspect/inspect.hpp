#pragma once

#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// Inspects a data set. Its facts (those marked * need a check other than none):
///
///   all           data (its location, without secrets), format, bytes (of the files that contain samples)
///   images        samples; shards (their number), or unsupported (image files of formats that libtrain does not
///                 decode); classes (see class_facts; of shards *); widths and heights * (min, median, max); kinds *
///                 (numbers of images that are jpeg_baseline, jpeg_progressive, png, and so on); small_images * and
///                 duplicates * (images with the bytes of an earlier one), their count and the first five;
///                 contact_sheet
///   COCO          images, images_without_annotations, images_to_train_on, widths, heights, annotations, crowds, masks,
///                 categories (see class_facts), left_out and odd_ids (see CocoFindings)
///   CSV, TSV      rows, columns (name, empty_fields *)
///   JSON lines    rows, columns * by name (name, empty_fields: null or "", rows_without)
///   IDX           shape, values (min, max), classes if there is one dimension
///
/// Bad samples are images that cannot be read or, with Check::decode, decoded, and lines that are not JSON objects.
/// Shows progress on standard error if that is a terminal. Throws EnvironmentError for data that cannot be opened and
/// for a storage that fails, UsageError for options that do not fit the data.
Report inspect(const InspectOptions& options);

/// The same for one format, without Report::check. A COCO instances file is read as for training; throws as open_file()
/// and read_coco().
Report inspect_coco(const InspectOptions& options);

/// A CSV file with a header in its first row, or a TSV file. Throws as open_file(), and as CsvFile for the first
/// malformed row: the rows after it cannot be told apart.
Report inspect_csv(const InspectOptions& options);

/// An IDX file; if it has one dimension, its values are taken for labels. Throws as read_idx(), and UsageError for a
/// file that is not on a local disk.
Report inspect_idx(const InspectOptions& options);

/// A folder of images, or of shards. Writes the contact sheet first. Images of formats other than JPEG
/// and PNG are counted, not an error; classes without images are counted, and named in the refusal. Throws as
/// open_storage(), open_image_source() and write_contact_sheet().
Report inspect_images(const InspectOptions& options);

/// A file of JSON lines. A line that is not one JSON object is a bad sample. Throws as open_file() and File::read_at.
Report inspect_json_lines(const InspectOptions& options);

}  // namespace libtrain::inspect
