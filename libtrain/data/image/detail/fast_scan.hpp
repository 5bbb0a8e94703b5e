#pragma once

#include <limits>

#include <libtrain/data/image/detail/libjpeg.hpp>
#include <libtrain/data/image/detail/scan_decoder.hpp>

namespace libtrain::data::detail {

/// libjpeg with a ScanDecoder instead of its own entropy decoder; everything else, from the inverse transform to the
/// colours, is libjpeg's. If the ScanDecoder refuses the scan, the guarded step that reads it fails with
/// JpegErrors::scan_refused set, and the image must be decoded again without FastScan.
class FastScan {
 public:
  /// `decoder` must outlive this.
  explicit FastScan(ScanDecoder& decoder) : decoder_(decoder) {}
  FastScan(const FastScan&) = delete;  // libjpeg points to it
  FastScan& operator=(const FastScan&) = delete;

  /// Call it between jpeg_start_decompress() and the first row; this must outlive the reader's last row. Returns false,
  /// without a change, for scans that ScanDecoder does not support or refuses at once, and if libtrain was built with a
  /// libjpeg whose internal interface (jpegint.h) is not public.
  bool take_over(JpegReader& reader);

  /// Call it after jpeg_crop_scanline(), with the columns that it chose: MCUs outside of them are skipped, because
  /// libjpeg makes no pixels of them. Without this call all MCUs are decoded.
  void crop(const jpeg_decompress_struct& info, JDIMENSION begin, JDIMENSION width) noexcept {
    const int blocks = info.comps_in_scan == 1 ? 1 : info.max_h_samp_factor;
    const JDIMENSION mcu_width = static_cast<JDIMENSION>(blocks * DCTSIZE) * info.scale_num / info.scale_denom;
    first_column_ = begin / mcu_width;
    last_column_ = (begin + width - 1) / mcu_width;
  }

  /// libjpeg's call for the `blocks` of the next MCU; null if it skips rows.
  bool decode_mcu(const jpeg_decompress_struct& info, JBLOCKROW* blocks) noexcept;

 private:
  ScanDecoder& decoder_;
  JDIMENSION first_column_ = 0;  // of MCUs that are wanted
  JDIMENSION last_column_ = std::numeric_limits<JDIMENSION>::max();
  JDIMENSION column_ = 0;  // of the next MCU
};

}  // namespace libtrain::data::detail
