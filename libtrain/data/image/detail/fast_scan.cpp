// jpeglib.h declares libjpeg's internals only for its own modules; the entropy decoder below acts as one of them.
// Libraries of the same soname differ in these internals (libjpeg-turbo 3.0 moved members of jpeg_decomp_master). The
// first two members of jpeg_entropy_decoder have not moved since libjpeg 5 of 1994: use no others.
#define JPEG_INTERNALS
#include <libtrain/data/image/detail/fast_scan.hpp>

#include <csetjmp>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include <libtrain/data/image/detail/scan_decoder.hpp>

namespace libtrain::data::detail {

namespace {

static_assert(std::is_same_v<JCOEF, std::int16_t> && sizeof(JBLOCK) == ScanDecoder::kBlockSize * sizeof(JCOEF));

// libjpeg's decode_mcu.
boolean decode_next_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  if (static_cast<FastScan*>(info->client_data)->decode_mcu(*info, blocks)) return TRUE;
  JpegErrors& errors = *reinterpret_cast<JpegErrors*>(info->err);
  errors.scan_refused = true;
  std::longjmp(errors.escape, 1);
}

}  // namespace

bool FastScan::take_over(JpegReader& reader) {
  jpeg_decompress_struct& info = reader.info();
  const std::optional<ScanLayout> layout = prepare_scan(info, decoder_);
  const std::span<const JOCTET> data(info.src->next_input_byte, info.src->bytes_in_buffer);
  if (!layout || !decoder_.start(std::as_bytes(data), *layout)) return false;
  info.client_data = this;
  info.entropy->decode_mcu = decode_next_mcu;
  return true;
}

bool FastScan::decode_mcu(const jpeg_decompress_struct& info, JBLOCKROW* blocks) noexcept {
  const JDIMENSION column = column_;
  column_ = column + 1 < info.MCUs_per_row ? column + 1 : 0;
  const bool wanted = column >= first_column_ && column <= last_column_;
  if (blocks == nullptr || !wanted) return decoder_.decode_mcu(nullptr);
  JCOEF* coefficients[ScanLayout::kMaxBlocks];
  for (int i = 0; i < info.blocks_in_MCU; ++i) coefficients[i] = blocks[i][0];
  return decoder_.decode_mcu(coefficients);
}

}  // namespace libtrain::data::detail
