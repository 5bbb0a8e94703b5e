#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

struct jpeg_decompress_struct;  // of jpeglib.h

namespace libtrain::data::detail {

/// A Huffman code as defined by a DHT marker (ITU-T T.81, B.2.4.2): the number of codes of each length, and their
/// symbols, the shortest codes first.
struct HuffmanCode {
  std::array<std::uint8_t, 17> counts = {};  ///< by length in bits; [0] is not used
  std::array<std::uint8_t, 256> symbols = {};

  bool operator==(const HuffmanCode&) const = default;
};

/// The meaning of the next bits of a scan. A symbol of a JPEG's Huffman code contains the number of zeros to skip
/// (upper four bits) and the number of bits of the number that follows (lower four bits). Most are so short that a
/// table of the next kLookupBits bits contains symbol and number, and often a second symbol and number.
class HuffmanEntry {
 public:
  /// A block has 64 places. An entry may be used at a place from 1 to 63 if the remainder of place + places() by
  /// kEndOfBlock is at most 64: for an incomplete entry it is always above, and the end of a block cancels out.
  static constexpr unsigned int kEndOfBlock = 128;
  static constexpr unsigned int kIncomplete = 64;

  /// Incomplete, without even a code.
  constexpr HuffmanEntry() : HuffmanEntry(0, kIncomplete, 0, 0, 0, 0) {}

  /// `total_bits` are the code's and the number's.
  static constexpr HuffmanEntry number(unsigned int run, unsigned int total_bits, std::int32_t value) {
    return HuffmanEntry(total_bits, run + 1, run, run + 1, value, 0);
  }
  static constexpr HuffmanEntry end_of_block(unsigned int code_bits) {
    return HuffmanEntry(code_bits, kEndOfBlock + 1, 0, 0, 0, 0);  // + 1: only at a place inside the block
  }
  /// A number and the entry that follows it.
  static constexpr HuffmanEntry pair(const HuffmanEntry& first, const HuffmanEntry& second) {
    return HuffmanEntry(first.bits() + second.bits(), first.places() + second.places(), first.first_place(),
                        first.places() + second.first_place(), first.first_value(), second.first_value());
  }
  /// A symbol whose number must be read separately.
  static constexpr HuffmanEntry incomplete(std::uint8_t symbol, unsigned int code_bits) {
    return HuffmanEntry(0, kIncomplete, symbol, code_bits, 0, 0);
  }

  /// The number of bits of the scan that this entry covers; 0 if it is incomplete.
  constexpr unsigned int bits() const { return static_cast<unsigned int>(word_ & 0x3F); }
  /// The number of places by which it advances in a block.
  constexpr unsigned int places() const { return field(8); }

  // For complete entries: two coefficients and their distances from the current place. If there is only one number, the
  // second coefficient is a zero, at a later place.
  constexpr unsigned int first_place() const { return field(16); }
  constexpr unsigned int second_place() const { return field(24); }
  constexpr std::int16_t first_value() const { return static_cast<std::int16_t>(word_ >> 32 & 0xFFFF); }
  constexpr std::int16_t second_value() const { return static_cast<std::int16_t>(word_ >> 48); }

  // For incomplete entries: code_bits() is 0 if the code is longer than a lookup, or if there is no such code.
  constexpr unsigned int run() const { return field(16) >> 4; }
  constexpr unsigned int number_bits() const { return field(16) & 0xF; }
  constexpr unsigned int code_bits() const { return field(24); }

 private:
  constexpr HuffmanEntry(unsigned int bits, unsigned int field8, unsigned int field16, unsigned int field24,
                         std::int32_t value, std::int32_t next_value)
      : word_(std::uint64_t{bits} | std::uint64_t{field8} << 8 | std::uint64_t{field16} << 16 |
              std::uint64_t{field24} << 24 | (static_cast<std::uint64_t>(value) & 0xFFFF) << 32 |
              (static_cast<std::uint64_t>(next_value) & 0xFFFF) << 48) {}

  constexpr unsigned int field(int shift) const { return static_cast<unsigned int>(word_ >> shift & 0xFF); }

  std::uint64_t word_;
};

/// How far the next bits of a scan advance if the numbers are not needed: all symbols whose codes are inside a lookup;
/// the number of the last symbol may extend beyond it. May be used at a place under the condition of
/// HuffmanEntry::kEndOfBlock.
struct HuffmanStride {
  std::uint8_t bits = 0;
  std::uint8_t places = HuffmanEntry::kIncomplete;
};

/// The decoding tables of a JPEG's Huffman code.
class HuffmanTable {
 public:
  static constexpr int kLookupBits = 10;
  static constexpr int kLongestCode = 16;
  static constexpr int kLongestNumber = 11;
  static constexpr int kLongestStride = kLookupBits + kLongestNumber;

  enum class Use : std::uint8_t { kDifference, kCoefficients };  // T.81: DC and AC

  /// Returns false for a code that cannot be decoded: lengths that are not those of a prefix code, or symbols without a
  /// meaning for an image of 8 bits. Returns at once if the code is that of the previous call, as for files whose
  /// encoder used the tables of T.81.
  bool build(const HuffmanCode& code, Use use);

  /// The next bit is the highest bit of `bits`. For kDifference, entries have one number each.
  HuffmanEntry entry(std::uint64_t bits) const { return lookup_[bits >> (64 - kLookupBits)]; }

  /// For kCoefficients only.
  HuffmanStride stride(std::uint64_t bits) const { return strides_[bits >> (64 - kLookupBits)]; }

  /// The next symbol alone, whose code is known to have at least `shortest` bits: an incomplete entry, with code_bits()
  /// 0 if the bits do not start with a code.
  HuffmanEntry next_symbol(std::uint64_t bits, int shortest = 1) const;

 private:
  static constexpr std::size_t kLookups = std::size_t{1} << kLookupBits;

  // The first symbol of a lookup; 0 bits: its code is longer than the lookup.
  struct Symbol {
    std::uint8_t symbol = 0;
    std::uint8_t code_bits = 0;
  };
  using Symbols = std::array<Symbol, kLookups>;

  bool assign(const HuffmanCode& code, Use use);
  void fill(std::uint32_t code, int length, std::uint8_t symbol);
  void pair_up();
  void fill_strides(const Symbols& symbols);

  std::array<HuffmanEntry, kLookups> lookup_ = {};
  std::array<HuffmanStride, kLookups> strides_ = {};
  // By length: one more than the largest code, shifted to the top of 16 bits, and the index of the symbol of code 0.
  std::array<std::uint32_t, kLongestCode + 1> limits_ = {};
  std::array<std::int32_t, kLongestCode + 1> offsets_ = {};
  HuffmanCode code_ = {};
  Use use_ = Use::kDifference;
  bool built_ = false;
};

/// The value of a number of `bits` bits by T.81's F.2.2.1 (EXTEND): the upper half of the range is positive.
constexpr std::int32_t extend(std::uint32_t number, int bits) {
  const std::int32_t value = static_cast<std::int32_t>(number);
  return bits > 0 && number >> (bits - 1) == 0 ? value - (1 << bits) + 1 : value;
}

/// The layout of a scan, from the header.
struct ScanLayout {
  static constexpr std::size_t kMaxBlocks = 10;  // of an MCU (T.81, B.2.3)
  static constexpr std::size_t kMaxTables = 4;

  struct Block {
    std::uint8_t component = 0;
    std::uint8_t difference_table = 0;
    std::uint8_t coefficient_table = 0;
  };
  std::array<Block, kMaxBlocks> blocks = {};  ///< of an MCU, in order
  std::size_t block_count = 0;
  unsigned int restart_interval = 0;  ///< in MCUs; 0: none
  std::size_t segments = 1;           ///< between restart markers
};

/// Reads the Huffman codes of a sequential JPEG's scan: half of libjpeg-turbo's work for a photograph, in about half
/// the time, because it mostly reads two coefficients at once.
///
/// It refuses data for which libjpeg would warn or guess, and the caller must then use libjpeg. Data that it accepts it
/// reads as libjpeg does, even if it is damaged but decodable.
///
/// Keeps its tables between images, and its memory up to a few MiB; used by one thread at a time. It must not be used
/// after it has been moved from.
class ScanDecoder {
 public:
  static constexpr std::size_t kBlockSize = 64;

  HuffmanTable& difference_table(std::size_t i) { return difference_tables_[i]; }
  HuffmanTable& coefficient_table(std::size_t i) { return coefficient_tables_[i]; }

  /// Starts a scan at the beginning of `data`, which extends to the end of the file; the tables of `layout` must have
  /// been built. Copies the scan. Returns false if restart markers do not match the layout, or if no marker ends the
  /// scan.
  bool start(std::span<const std::byte> data, const ScanLayout& layout);

  /// Decodes the next MCU: writes to blocks[i][0..63], in natural order, the coefficients that are not zero and
  /// possibly some that are; all must be zero before. If `blocks` is null, skips the MCU, which is faster, and free if
  /// no later MCU before the next restart marker is decoded; damage there goes unnoticed. Returns false if it refuses
  /// the data; then only start() may be called.
  ///
  /// Owns nothing on the stack and does not throw, because libjpeg's frames may be below it.
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

  // On the heap, because decoders may be on the stack.
  std::vector<HuffmanTable> difference_tables_ = std::vector<HuffmanTable>(ScanLayout::kMaxTables);
  std::vector<HuffmanTable> coefficient_tables_ = std::vector<HuffmanTable>(ScanLayout::kMaxTables);
  ScanLayout layout_ = {};

  // The scan without its markers and stuffed zeros, and the end of each segment.
  std::vector<std::uint8_t> bytes_;
  std::vector<std::size_t> ends_;

  std::size_t segment_ = 0;
  std::size_t position_ = 0;    // in bits
  unsigned int mcus_left_ = 0;  // in the segment, if there are restart markers
  unsigned int passed_ = 0;     // skipped MCUs at position_ that have not been read
  std::array<std::int32_t, 4> predictions_ = {};
};

/// The layout of the first scan, from libjpeg after jpeg_start_decompress(); builds the tables of `decoder` for it.
/// std::nullopt for scans that ScanDecoder does not support: progressive, arithmetic, not of all components, or with a
/// Huffman code that HuffmanTable refuses.
std::optional<ScanLayout> prepare_scan(const jpeg_decompress_struct& info, ScanDecoder& decoder);

}  // namespace libtrain::data::detail
