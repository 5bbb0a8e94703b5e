#pragma once

#include <limits>

#include <libtrain/data/image/detail/libjpeg.hpp>
#include <libtrain/data/image/detail/scan_decoder.hpp>

namespace libtrain::data::detail {

/// libjpeg with a ScanDecoder in the place of its own entropy decoder; all else, from the inverse transform to the
/// colours, stays libjpeg's. Where the scan turns out not to be flawless, the guarded step that was reading it fails
/// with JpegErrors::scan_refused set, and the picture is to be decoded anew without this.
class FastScan {
 public:
  /// `decoder` must outlive this.
  explicit FastScan(ScanDecoder& decoder) : decoder_(decoder) {}
  FastScan(const FastScan&) = delete;  // libjpeg points to it
  FastScan& operator=(const FastScan&) = delete;

  /// To be called between jpeg_start_decompress() and the first row; must outlive the reader's last row. Returns false,
  /// having changed nothing, for scans that ScanDecoder does not understand or refuses at once, and where libtrain was
  /// built with a libjpeg whose inner interface (jpegint.h) is not public.
  bool take_over(JpegReader& reader);

  /// To be called behind jpeg_crop_scanline(), with the columns that it settled on: the MCUs beside them are passed
  /// over, since libjpeg makes no pixels of them. Before, and without, all MCUs are decoded.
  void crop(const jpeg_decompress_struct& info, JDIMENSION begin, JDIMENSION width) noexcept {
    const int blocks = info.comps_in_scan == 1 ? 1 : info.max_h_samp_factor;
    const JDIMENSION mcu_width = static_cast<JDIMENSION>(blocks * DCTSIZE) * info.scale_num / info.scale_denom;
    first_column_ = begin / mcu_width;
    last_column_ = (begin + width - 1) / mcu_width;
  }

  /// libjpeg's call for the next MCU's `blocks`, or null where it passes over rows.
  bool decode_mcu(const jpeg_decompress_struct& info, JBLOCKROW* blocks) noexcept;

 private:
  ScanDecoder& decoder_;
  JDIMENSION first_column_ = 0;  // of MCUs that are wanted
  JDIMENSION last_column_ = std::numeric_limits<JDIMENSION>::max();
  JDIMENSION column_ = 0;  // of the next MCU
};

}  // namespace libtrain::data::detail
