#include <libtrain/data/image/detail/restart.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/detail/libjpeg.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::data::detail {

namespace {

constexpr int kSmallestInterval = 4;
constexpr int kMaxInterval = 8;
constexpr unsigned int kLongestMarker = 0xFFFF;
constexpr int kApplicationMarkers = 16;

// One scan of Huffman codes over all components.
bool has_plain_scan(const JpegHeader& header) {
  return !header.progressive && !header.arithmetic && header.precision == 8 &&
         header.first_scan_components == header.component_count;
}

bool has_fine_markers(const JpegHeader& header) {
  return header.restart_interval > 0 && header.restart_interval <= kMaxInterval &&
         header.mcus_per_row() % header.restart_interval == 0;
}

// Runs inside a guarded step. The file's markers were saved, so that libjpeg does not write its own.
void write_coefficients(jpeg_decompress_struct& from, jvirt_barray_ptr* coefficients, jpeg_compress_struct& to,
                        unsigned int interval) {
  jpeg_copy_critical_parameters(&from, &to);
  to.optimize_coding = TRUE;
  to.restart_interval = interval;
  to.write_JFIF_header = FALSE;
  to.write_Adobe_marker = FALSE;
  jpeg_write_coefficients(&to, coefficients);
  for (jpeg_saved_marker_ptr marker = from.marker_list; marker != nullptr; marker = marker->next) {
    jpeg_write_marker(&to, marker->marker, marker->data, marker->data_length);
  }
  jpeg_finish_compress(&to);
}

// A part of the image, in pixels at full size, and its segments.
struct Part {
  int first_column = 0;  // of segments
  int last_column = 0;
  int first_row = 0;  // of MCUs
  int last_row = 0;
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};

// libjpeg uses smooth upsampling only for images with more than two samples of chroma per row, so a part of a wider
// image must not be narrower than that.
constexpr int kMaxCoarseWidth = 4;

void set_width(Part& part, const JpegHeader& header, int segment_width) {
  part.x = part.first_column * segment_width;
  part.width = std::min(header.width, (part.last_column + 1) * segment_width) - part.x;
}

// Upsampling treats the edges of the part as those of the image, which changes the outermost pixels: the part has one
// more pixel on each side, unless that is an edge of the image.
Part part_of(const JpegHeader& header, const RestartIndex& index, const Crop& crop, int scale_denominator) {
  const bool subsampled = header.component_count > 1 &&
                          (header.maximum_horizontal_sampling() > 1 || header.maximum_vertical_sampling() > 1);
  const int context = subsampled ? 1 : 0;
  const int segment_width = index.interval * header.mcu_width();
  const int segment_height = header.mcu_height();
  const auto first = [&](int begin, int size) { return std::max(0, begin - context) * scale_denominator / size; };
  const auto last = [&](int end, int size, int limit) {
    return (std::min(limit, (end + context) * scale_denominator) - 1) / size;
  };
  Part part{.first_column = first(crop.x, segment_width),
            .last_column = last(crop.x + crop.width, segment_width, header.width),
            .first_row = first(crop.y, segment_height),
            .last_row = last(crop.y + crop.height, segment_height, header.height)};
  set_width(part, header, segment_width);
  while (part.width <= kMaxCoarseWidth * scale_denominator && part.width < header.width) {
    if (part.first_column > 0) {
      --part.first_column;
    } else {
      ++part.last_column;
    }
    set_width(part, header, segment_width);
  }
  part.y = part.first_row * segment_height;
  part.height = std::min(header.height, (part.last_row + 1) * segment_height) - part.y;
  return part;
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void store16(std::vector<std::byte>& bytes, std::size_t offset, int value) {
  bytes[offset] = static_cast<std::byte>(value >> 8);
  bytes[offset + 1] = static_cast<std::byte>(value & 0xFF);
}

// Whether decoding needs the marker. Comments, Exif and profiles may be long.
bool is_needed(std::uint8_t code) {
  switch (code) {
    case kDefineQuantizationTables:
    case kDefineHuffmanTables:
    case kDefineRestartInterval:
    case kStartOfScan:
    case kApplication0:
    case kApplication14:
      return true;
    default:
      return is_frame(code);
  }
}

void append_headers(std::vector<std::byte>& to, std::span<const std::byte> file, const JpegHeader& header,
                    const Part& part) {
  static const std::string kName = "in memory";  // the headers were read before
  append(to, file.first(2));
  JpegMarkers markers(file, kName);
  for (;;) {
    const JpegMarker marker = markers.next();
    if (!is_needed(marker.code)) continue;
    const std::size_t begin = to.size();
    append(to, file.subspan(marker.offset, marker.end() - marker.offset));
    if (marker.offset == header.frame_offset) {
      store16(to, begin + 5, part.height);
      store16(to, begin + 7, part.width);
    }
    if (marker.code == kStartOfScan) return;
  }
}

void append_segments(std::vector<std::byte>& to, std::span<const std::byte> file, const RestartIndex& index,
                     const Part& part) {
  unsigned int number = 0;
  for (int row = part.first_row; row <= part.last_row; ++row) {
    const auto first = static_cast<std::size_t>(row) * static_cast<std::size_t>(index.segments_per_row) +
                       static_cast<std::size_t>(part.first_column);
    const auto end = first + static_cast<std::size_t>(part.last_column - part.first_column) + 1;
    const std::size_t offset = index.starts[first];
    const std::size_t begin = to.size();
    append(to, file.subspan(offset, index.starts[end] - offset));
    for (std::size_t segment = first + 1; segment <= end; ++segment) {
      to[begin + (index.starts[segment] - offset) - 1] = static_cast<std::byte>(kFirstRestart + number++ % 8);
    }
  }
  to.back() = static_cast<std::byte>(kEndOfImage);
}

}  // namespace

int choose_restart_interval(int mcus_per_row, int wanted) {
  int chosen = 0;
  for (int interval = kSmallestInterval; interval <= kMaxInterval; ++interval) {
    if (mcus_per_row % interval != 0) continue;
    if (chosen == 0 || std::abs(interval - wanted) < std::abs(chosen - wanted)) chosen = interval;
  }
  for (int interval = kMaxInterval + 1; chosen == 0 && interval < mcus_per_row; ++interval) {
    if (mcus_per_row % interval == 0) chosen = interval;
  }
  return chosen == 0 ? mcus_per_row : chosen;
}

std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const RestartOptions& options) {
  if (options.interval < kSmallestInterval || options.interval > kMaxInterval) {
    throw UsageError(text("RestartOptions::interval is ", options.interval, ", expected 4 to 8."));
  }
  const JpegHeader header = parse_jpeg_header(file, options.name);
  if (!has_plain_scan(header) || has_fine_markers(header)) return std::nullopt;
  check_pixels("JPEG", {.name = options.name, .maximum_pixels = options.maximum_pixels},
               static_cast<std::uint64_t>(header.width), static_cast<std::uint64_t>(header.height));

  JpegReader reader(file, options.name, std::numeric_limits<long>::max());
  jpeg_decompress_struct& from = reader.info();
  reader.run([&from] {
    jpeg_save_markers(&from, JPEG_COM, kLongestMarker);
    for (int i = 0; i < kApplicationMarkers; ++i) jpeg_save_markers(&from, JPEG_APP0 + i, kLongestMarker);
    jpeg_read_header(&from, TRUE);
  });
  reader.check_length();
  jvirt_barray_ptr* coefficients = nullptr;
  reader.run([&from, &coefficients] { coefficients = jpeg_read_coefficients(&from); });
  if (reader.errors().warnings > 0) return std::nullopt;

  JpegWriter writer(reader);
  jpeg_compress_struct& to = writer.info();
  const auto interval = static_cast<unsigned int>(choose_restart_interval(header.mcus_per_row(), options.interval));
  reader.run([&] { write_coefficients(from, coefficients, to, interval); });
  const auto bytes = writer.bytes();
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

bool find_restart_segments(std::span<const std::byte> file, const JpegHeader& header, RestartIndex& index) {
  index.starts.clear();
  const int interval = header.restart_interval;
  if (!has_plain_scan(header) || interval == 0 || header.mcus_per_row() % interval != 0) return false;
  if (file.size() > std::numeric_limits<std::uint32_t>::max() || header.scan_offset > file.size()) return false;
  index.interval = interval;
  index.segments_per_row = header.mcus_per_row() / interval;
  index.rows = header.mcu_rows();
  const std::size_t expected = static_cast<std::size_t>(index.segments_per_row) * static_cast<std::size_t>(index.rows);

  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  std::size_t place = header.scan_offset;
  index.starts.push_back(static_cast<std::uint32_t>(place));
  while (index.starts.size() <= expected) {
    const void* found = std::memchr(bytes + place, 0xFF, file.size() - place);
    if (found == nullptr) return false;
    place = static_cast<std::size_t>(static_cast<const unsigned char*>(found) - bytes) + 1;
    if (place == file.size()) return false;
    const std::uint8_t code = bytes[place];
    // A fill byte: the next 0xFF may start the marker.
    if (code == 0xFF) continue;
    ++place;
    if (code == 0) continue;
    const std::size_t number = index.starts.size() - 1;
    const auto marker = static_cast<std::uint8_t>(number + 1 == expected ? kEndOfImage : kFirstRestart + number % 8);
    if (code != marker) return false;
    index.starts.push_back(static_cast<std::uint32_t>(place));
  }
  return true;
}

std::optional<Crop> cut_restart_segments(std::span<const std::byte> file, const JpegHeader& header,
                                         const RestartIndex& index, const Crop& crop, int scale_denominator,
                                         std::vector<std::byte>& part) {
  const Part place = part_of(header, index, crop, scale_denominator);
  if (place.width == header.width && place.height == header.height) return std::nullopt;
  part.clear();
  append_headers(part, file, header, place);
  append_segments(part, file, index, place);
  return Crop{.x = crop.x - place.x / scale_denominator,
              .y = crop.y - place.y / scale_denominator,
              .width = crop.width,
              .height = crop.height};
}

}  // namespace libtrain::data::detail
