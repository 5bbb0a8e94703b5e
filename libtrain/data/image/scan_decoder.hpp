#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <libtrain/data/image/huffman_table.hpp>

namespace libtrain::data::detail {

/// What the header says of a scan.
struct ScanLayout {
  static constexpr std::size_t kMostBlocks = 10;  // of an MCU (T.81, B.2.3)
  static constexpr std::size_t kMostTables = 4;

  struct Block {
    std::uint8_t component = 0;
    std::uint8_t difference_table = 0;
    std::uint8_t coefficient_table = 0;
  };
  std::array<Block, kMostBlocks> blocks = {};  ///< of an MCU, in order
  std::size_t block_count = 0;
  unsigned int restart_interval = 0;  ///< in MCUs; 0: none
  std::size_t segments = 1;           ///< that restart markers part the scan in
};

/// Reads the Huffman codes of a sequential JPEG's scan: half of libjpeg-turbo's work for a photograph, in about half of
/// its time, because two coefficients are mostly read at once.
///
/// Of what it reads it refuses whatever libjpeg would warn of or mend, and whoever called it turns to libjpeg then.
/// What it accepts it reads as libjpeg does, also where that is damaged but makes sense.
///
/// Keeps its tables between pictures, and its memory up to a few MiB; used by one thread at a time. Not to be used once
/// it has been moved from.
class ScanDecoder {
 public:
  static constexpr std::size_t kBlockSize = 64;

  HuffmanTable& difference_table(std::size_t i) { return difference_tables_[i]; }
  HuffmanTable& coefficient_table(std::size_t i) { return coefficient_tables_[i]; }

  /// Takes up the scan whose data begins with `data`, which goes on to the end of the file; the tables that `layout`
  /// names must have been built. Copies the scan. Returns false where restart markers are not as the layout says, or no
  /// marker ends the scan.
  bool start(std::span<const std::byte> data, const ScanLayout& layout);

  /// Decodes the next MCU: writes to blocks[i][0..63], in natural order, the coefficients that are not zero and perhaps
  /// some that are; all must be zero before. Where `blocks` is null, passes over the MCU, which is faster, and free
  /// where none is wanted behind it before the next restart marker; what is wrong with such data goes unnoticed.
  /// Returns false where the data is not flawless, after which there is nothing to be done but start().
  ///
  /// Owns nothing on the stack and does not throw: libjpeg may be beneath it.
  bool decode_mcu(std::int16_t* const* blocks) noexcept;

 private:
  struct Bits;

  void copy(std::span<const std::byte> scan);
  bool next_segment() noexcept;
  bool read_difference(Bits& bits, const ScanLayout::Block& block) noexcept;
  bool decode_block(Bits& bits, const ScanLayout::Block& block, std::int16_t* to) noexcept;
  bool pass_block(Bits& bits, const ScanLayout::Block& block) noexcept;
  bool pass_mcu(Bits& bits) noexcept;
  bool is_in_segment(const Bits& bits) const noexcept;

  // Not on the stack, where decoders may be.
  std::vector<HuffmanTable> difference_tables_ = std::vector<HuffmanTable>(ScanLayout::kMostTables);
  std::vector<HuffmanTable> coefficient_tables_ = std::vector<HuffmanTable>(ScanLayout::kMostTables);
  ScanLayout layout_ = {};

  // The scan without its markers and stuffed zeros, and where each of its segments ends.
  std::vector<std::uint8_t> bytes_;
  std::vector<std::size_t> ends_;

  std::size_t segment_ = 0;
  std::size_t position_ = 0;    // in bits
  unsigned int mcus_left_ = 0;  // of the segment, where there are restart markers
  unsigned int passed_ = 0;     // MCUs at position_ that are not wanted and have not been read
  std::array<std::int32_t, 4> predictions_ = {};
};

}  // namespace libtrain::data::detail
