#include <libtrain/data/image/restart_index.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/jpeg_markers.hpp>
#include <libtrain/data/image/libjpeg.hpp>

namespace libtrain::data {

namespace {

constexpr int kSmallestInterval = 4;
constexpr int kGreatestInterval = 8;
constexpr unsigned int kLongestMarker = 0xFFFF;
constexpr int kApplicationMarkers = 16;

// One scan of Huffman codes over all components.
bool has_plain_scan(const JpegHeader& header) {
  return !header.progressive && !header.arithmetic && header.precision == 8 &&
         header.first_scan_components == header.component_count;
}

bool has_fine_markers(const JpegHeader& header) {
  return header.restart_interval > 0 && header.restart_interval <= kGreatestInterval &&
         header.mcus_per_row() % header.restart_interval == 0;
}

// Runs inside a guarded step. The markers were saved as they are, so that libjpeg need not write its own.
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

}  // namespace

int choose_restart_interval(int mcus_per_row, int wanted) {
  int chosen = 0;
  for (int interval = kSmallestInterval; interval <= kGreatestInterval; ++interval) {
    if (mcus_per_row % interval != 0) continue;
    if (chosen == 0 || std::abs(interval - wanted) < std::abs(chosen - wanted)) chosen = interval;
  }
  for (int interval = kGreatestInterval + 1; chosen == 0 && interval < mcus_per_row; ++interval) {
    if (mcus_per_row % interval == 0) chosen = interval;
  }
  return chosen == 0 ? mcus_per_row : chosen;
}

std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const RestartOptions& options) {
  if (options.interval < kSmallestInterval || options.interval > kGreatestInterval) {
    throw UsageError(text("RestartOptions::interval is ", options.interval, ", expected 4 to 8."));
  }
  const JpegHeader header = parse_jpeg_header(file, options.name);
  if (!has_plain_scan(header) || has_fine_markers(header)) return std::nullopt;
  detail::check_pixels("JPEG", {.name = options.name, .maximum_pixels = options.maximum_pixels},
                       static_cast<std::uint64_t>(header.width), static_cast<std::uint64_t>(header.height));

  detail::JpegReader reader(file, options.name, std::numeric_limits<long>::max());
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

  detail::JpegWriter writer(reader);
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
    // Another 0xFF fills; it is found next.
    if (code == 0xFF) continue;
    ++place;
    if (code == 0) continue;
    const std::size_t number = index.starts.size() - 1;
    const auto marker =
        static_cast<std::uint8_t>(number + 1 == expected ? detail::kEndOfImage : detail::kFirstRestart + number % 8);
    if (code != marker) return false;
    index.starts.push_back(static_cast<std::uint32_t>(place));
  }
  return true;
}

}  // namespace libtrain::data
