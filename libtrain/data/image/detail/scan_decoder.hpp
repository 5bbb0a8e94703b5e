#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

struct jpeg_decompress_struct;  // of jpeglib.h

namespace libtrain::data::detail {

/// A Huffman code as a DHT marker defines it (ITU-T T.81, B.2.4.2): how many codes there are of each length, and what
/// they stand for, the shortest first.
struct HuffmanCode {
  std::array<std::uint8_t, 17> counts = {};  ///< by length in bits; [0] is not used
  std::array<std::uint8_t, 256> symbols = {};

  bool operator==(const HuffmanCode&) const = default;
};

/// What the next bits of a scan mean. A symbol of a JPEG's Huffman code says how many zeros to pass over (in its upper
/// four bits) and how many bits of a number follow (in its lower four); most are so short that a table by the next
/// kLookupBits bits holds symbol and number, and often those of a second one as well.
class HuffmanEntry {
 public:
  /// A block has 64 places. An entry may be used at a place from 1 to 63 where the remainder of place + places() by
  /// kEndOfBlock is at most 64: an incomplete entry always lands above, the end of a block drops out.
  static constexpr unsigned int kEndOfBlock = 128;
  static constexpr unsigned int kIncomplete = 64;

  /// Incomplete, without even a code.
  constexpr HuffmanEntry() : HuffmanEntry(0, kIncomplete, 0, 0, 0, 0) {}

  /// `total_bits` are the code's and the number's.
  static constexpr HuffmanEntry number(unsigned int run, unsigned int total_bits, std::int32_t value) {
    return HuffmanEntry(total_bits, run + 1, run, run + 1, value, 0);
  }
  static constexpr HuffmanEntry end_of_block(unsigned int code_bits) {
    return HuffmanEntry(code_bits, kEndOfBlock + 1, 0, 0, 0, 0);  // only at a place that the block has
  }
  /// A number, and what follows it.
  static constexpr HuffmanEntry pair(const HuffmanEntry& first, const HuffmanEntry& second) {
    return HuffmanEntry(first.bits() + second.bits(), first.places() + second.places(), first.first_place(),
                        first.places() + second.first_place(), first.first_value(), second.first_value());
  }
  /// A symbol whose number is to be read.
  static constexpr HuffmanEntry incomplete(std::uint8_t symbol, unsigned int code_bits) {
    return HuffmanEntry(0, kIncomplete, symbol, code_bits, 0, 0);
  }

  /// How many bits of the scan this stands for; 0: it is incomplete.
  constexpr unsigned int bits() const { return static_cast<unsigned int>(word_ & 0x3F); }
  /// By how many places it takes a block forward.
  constexpr unsigned int places() const { return field(8); }

  // Of a complete one: two coefficients, and how many places from here they are. Where there is but one number, the
  // second coefficient is a zero, at a place that comes later.
  constexpr unsigned int first_place() const { return field(16); }
  constexpr unsigned int second_place() const { return field(24); }
  constexpr std::int16_t first_value() const { return static_cast<std::int16_t>(word_ >> 32 & 0xFFFF); }
  constexpr std::int16_t second_value() const { return static_cast<std::int16_t>(word_ >> 48); }

  // Of an incomplete one: code_bits() is 0 where the code is longer than a lookup, or there is none.
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

/// How far the next bits of a scan lead, where nobody wants the numbers: as many symbols as show their codes in a
/// lookup; the number of the last one may reach beyond it. Fits a place under the condition that
/// HuffmanEntry::kEndOfBlock states.
struct HuffmanStride {
  std::uint8_t bits = 0;
  std::uint8_t places = HuffmanEntry::kIncomplete;
};

/// A Huffman code of a JPEG, made ready for decoding.
class HuffmanTable {
 public:
  static constexpr int kLookupBits = 10;
  static constexpr int kLongestCode = 16;
  static constexpr int kLongestNumber = 11;
  static constexpr int kLongestStride = kLookupBits + kLongestNumber;

  enum class Use : std::uint8_t { kDifference, kCoefficients };  // T.81: DC and AC

  /// Returns false for a code that cannot be decoded: lengths that a prefix code cannot have, or symbols that have no
  /// meaning in that use for a picture of 8 bits. Costs next to nothing where the code is the one of the last call, as
  /// it is for files whose encoder took T.81's own tables.
  bool build(const HuffmanCode& code, Use use);

  /// `bits` has the next bit on top. In the use kDifference, entries have one number each.
  HuffmanEntry entry(std::uint64_t bits) const { return lookup_[bits >> (64 - kLookupBits)]; }

  /// In the use kCoefficients.
  HuffmanStride stride(std::uint64_t bits) const { return strides_[bits >> (64 - kLookupBits)]; }

  /// The next symbol alone, where its code is known to have at least `shortest` bits: incomplete, with code_bits() 0
  /// where the bits begin no code.
  HuffmanEntry next_symbol(std::uint64_t bits, int shortest = 1) const;

 private:
  static constexpr std::size_t kLookups = std::size_t{1} << kLookupBits;

  // What a lookup begins with; 0 bits: no code that it shows the whole of.
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
  // By length: one more than the greatest code, moved to the top of 16 bits, and where the symbol of code 0 would be.
  std::array<std::uint32_t, kLongestCode + 1> limits_ = {};
  std::array<std::int32_t, kLongestCode + 1> offsets_ = {};
  HuffmanCode code_ = {};
  Use use_ = Use::kDifference;
  bool built_ = false;
};

/// The number that T.81's F.2.2.1 (EXTEND) makes of its `bits` bits: the upper half of the range is positive.
constexpr std::int32_t extend(std::uint32_t number, int bits) {
  const std::int32_t value = static_cast<std::int32_t>(number);
  return bits > 0 && number >> (bits - 1) == 0 ? value - (1 << bits) + 1 : value;
}

/// What the header says of a scan.
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
  std::vector<HuffmanTable> difference_tables_ = std::vector<HuffmanTable>(ScanLayout::kMaxTables);
  std::vector<HuffmanTable> coefficient_tables_ = std::vector<HuffmanTable>(ScanLayout::kMaxTables);
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

/// What libjpeg knows of the first scan once jpeg_start_decompress() has been called; builds the tables of `decoder`
/// for it. None for scans that ScanDecoder does not understand: progressive, arithmetic, not of all components, or with
/// a Huffman code that HuffmanTable refuses.
std::optional<ScanLayout> prepare_scan(const jpeg_decompress_struct& info, ScanDecoder& decoder);

}  // namespace libtrain::data::detail
