// The scan of a JPEG: what ScanDecoder accepts, libjpeg reads to the same coefficients without anything to warn of.
//
// The length of the input chooses which MCUs are wanted; the others are passed over.

#define JPEG_INTERNALS
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/detail/libjpeg.hpp>
#include <libtrain/data/image/detail/scan_decoder.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/fuzz/jpeg_seeds.hpp>
#include <tests/fuzz/target.hpp>

namespace {

using libtrain::data::detail::JpegReader;
using libtrain::data::detail::ScanDecoder;
using libtrain::data::detail::ScanLayout;

constexpr long kAnyDamage = 1'000'000;
constexpr std::uint64_t kMaxPixels = 1 << 14;

// Reads along with libjpeg.
struct Comparison {
  ScanDecoder& decoder;
  const long& warnings;  // libjpeg's so far
  const long of_headers = warnings;
  decltype(jpeg_entropy_decoder::decode_mcu) libjpeg = nullptr;
  std::size_t period = 1;  // of MCUs that are wanted
  std::size_t mcu = 0;
  bool accepted = true;

  boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
    if (!accepted) return FALSE;
    const boolean result = libjpeg(info, blocks);
    std::int16_t coefficients[ScanLayout::kMaxBlocks][ScanDecoder::kBlockSize] = {};
    std::int16_t* to[ScanLayout::kMaxBlocks];
    for (std::size_t i = 0; i < ScanLayout::kMaxBlocks; ++i) to[i] = coefficients[i];
    const bool wanted = mcu++ % period == 0;
    accepted = decoder.decode_mcu(wanted ? to : nullptr);
    if (!accepted) return FALSE;
    if (!wanted) return result;
    // Damage in MCUs that are passed over may go unnoticed.
    if (period > 1 && warnings > of_headers) return result;
    require(warnings == of_headers);
    for (int i = 0; i < info->blocks_in_MCU; ++i) {
      require(std::memcmp(coefficients[i], blocks[i][0], sizeof coefficients[i]) == 0);
    }
    return result;
  }
};

boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  return static_cast<Comparison*>(info->client_data)->decode_mcu(info, blocks);
}

void compare(std::span<const std::byte> file, ScanDecoder& decoder) {
  static const std::string kName = "fuzzed";
  libtrain::data::read_image_header(file, kName, kMaxPixels);
  JpegReader reader(file, kName, kAnyDamage);
  jpeg_decompress_struct& info = reader.info();
  reader.run([&info] { jpeg_read_header(&info, TRUE); });
  if (std::uint64_t{info.image_width} * info.image_height > kMaxPixels) return;
  reader.check_length();
  if (jpeg_has_multiple_scans(&info) != FALSE) return;
  reader.run([&info] { jpeg_start_decompress(&info); });
  const auto layout = libtrain::data::detail::prepare_scan(info, decoder);
  const std::span data(info.src->next_input_byte, info.src->bytes_in_buffer);
  if (!layout || !decoder.start(std::as_bytes(data), *layout)) return;

  Comparison comparison{.decoder = decoder,
                        .warnings = reader.errors().warnings,
                        .libjpeg = info.entropy->decode_mcu,
                        .period = 1 + file.size() % 3};
  info.client_data = &comparison;
  info.entropy->decode_mcu = decode_mcu;
  std::vector<JSAMPLE> row(std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components));
  JSAMPROW pointer = row.data();
  reader.run([&info, &pointer] {
    while (info.output_scanline < info.output_height && jpeg_read_scanlines(&info, &pointer, 1) == 1) continue;
  });
  if (comparison.accepted) ++read_inputs;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return plain_jpeg_seeds();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ScanDecoder decoder;  // used for every picture, as a worker's is
  try {
    compare(std::as_bytes(std::span(data, size)), decoder);
  } catch (const libtrain::EnvironmentError&) {
  }
  return 0;
}
