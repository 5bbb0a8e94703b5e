#include <libtrain/data/image/detail/scan_decoder.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <libtrain/data/image/detail/libjpeg.hpp>

namespace libtrain::data::detail {

namespace {

// The largest numbers of an image of 8 bits have 11 and 10 bits (T.81, tables F.1 and F.2).
constexpr int kMaxDifferenceBits = 11;
constexpr int kMaxCoefficientBits = 10;
constexpr unsigned int kBlockSize = 64;
constexpr std::uint8_t kEndOfBlockSymbol = 0x00;
constexpr std::uint8_t kSixteenZeros = 0xF0;

bool has_meaning(std::uint8_t symbol, HuffmanTable::Use use) {
  if (use == HuffmanTable::Use::kDifference) return symbol <= kMaxDifferenceBits;
  const int bits = symbol & 0xF;
  return bits == 0 ? symbol == kEndOfBlockSymbol || symbol == kSixteenZeros : bits <= kMaxCoefficientBits;
}

// The natural position of each place in a scan (T.81, figure A.6). The place after the last one, at which an entry with
// one number may write a zero, is that of the first coefficient, which is written at the end.
constexpr std::array<std::uint8_t, ScanDecoder::kBlockSize + 1> kNaturalOrder = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 0};

// The minimum number of bits after Bits::refill().
constexpr int kRefilledBits = 56;
constexpr int kMaxBits = HuffmanTable::kLongestCode + HuffmanTable::kLongestNumber;  // of a symbol and its number
// The number of entries that can be read between two refills if only the last one is incomplete.
constexpr int kEntriesPerRefill = 3;
static_assert((kEntriesPerRefill - 1) * HuffmanTable::kLookupBits + kMaxBits <= kRefilledBits);
constexpr int kStridesPerRefill = 2;
static_assert((kStridesPerRefill - 1) * HuffmanTable::kLongestStride + kMaxBits <= kRefilledBits);

// The most that one MCU reads beyond the end, whatever the data; decode_mcu() checks its position after each MCU.
constexpr std::size_t kPadding =
    ScanLayout::kMaxBlocks * ScanDecoder::kBlockSize * kMaxBits / 8 + 2 * sizeof(std::uint64_t);

// The memory of a larger scan is not kept in every worker for the rest of the run.
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;

// Returned for invalid data: larger than any difference, and after any place.
constexpr std::int32_t kNoDifference = 1 << 20;
constexpr unsigned int kNowhere = 2 * HuffmanEntry::kEndOfBlock;

std::uint64_t load_big_endian(const std::uint8_t* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
  return word;
}

const std::uint8_t* bytes_of(std::span<const std::byte> data) {
  return reinterpret_cast<const std::uint8_t*>(data.data());
}

bool is_restart(std::uint8_t code) {
  return code >= kFirstRestart && code < kStartOfImage;
}

// The next 0xFF, if any.
const std::uint8_t* find_0xff(const std::uint8_t* from, const std::uint8_t* end) {
  if (from == end) return nullptr;
  return static_cast<const std::uint8_t*>(std::memchr(from, 0xFF, static_cast<std::size_t>(end - from)));
}

constexpr std::size_t kNoEnd = std::numeric_limits<std::size_t>::max();

// The start of the marker that ends the scan, including the bytes 0xFF that may precede a marker.
std::size_t scan_end(std::span<const std::byte> data, const ScanLayout& layout) {
  const std::uint8_t* const begin = bytes_of(data);
  const std::uint8_t* const end = begin + data.size();
  const std::uint8_t* from = begin;
  std::size_t segment = 1;
  while (const std::uint8_t* const found = find_0xff(from, end)) {
    const std::uint8_t* code = found + 1;
    while (code != end && *code == 0xFF) ++code;
    if (code == end) return kNoEnd;
    from = code + 1;
    if (*code == 0) {
      // A 0xFF of the data. After fill bytes libjpeg does not read it the same way everywhere.
      if (code != found + 1) return kNoEnd;
      continue;
    }
    if (!is_restart(*code) || segment == layout.segments) return static_cast<std::size_t>(found - begin);
    if (*code != kFirstRestart + (segment - 1) % 8) return kNoEnd;
    ++segment;
  }
  return kNoEnd;
}

bool build(HuffmanTable& table, const JHUFF_TBL* from, HuffmanTable::Use use) {
  if (from == nullptr) return false;
  HuffmanCode code;
  std::copy(std::begin(from->bits) + 1, std::end(from->bits), code.counts.begin() + 1);
  std::copy(std::begin(from->huffval), std::end(from->huffval), code.symbols.begin());
  return table.build(code, use);
}

}  // namespace

bool HuffmanTable::build(const HuffmanCode& code, Use use) {
  if (built_ && use == use_ && code == code_) return true;
  built_ = assign(code, use);
  return built_;
}

bool HuffmanTable::assign(const HuffmanCode& code, Use use) {
  code_ = code;
  use_ = use;
  lookup_.fill(HuffmanEntry{});
  Symbols symbols = {};
  std::uint32_t next = 0;  // the next code, of the length at hand (T.81, C.2)
  std::size_t index = 0;
  for (int length = 1; length <= kLongestCode; ++length) {
    const auto at = static_cast<std::size_t>(length);
    offsets_[at] = static_cast<std::int32_t>(index) - static_cast<std::int32_t>(next);
    for (int i = 0; i < code.counts[at]; ++i) {
      if (index == code.symbols.size() || next >> length != 0) return false;
      const std::uint8_t symbol = code.symbols[index++];
      if (!has_meaning(symbol, use)) return false;
      if (length <= kLookupBits) {
        const auto first = symbols.begin() + (std::ptrdiff_t{next} << (kLookupBits - length));
        std::fill_n(first, 1 << (kLookupBits - length),
                    Symbol{.symbol = symbol, .code_bits = static_cast<std::uint8_t>(length)});
        fill(next, length, symbol);
      }
      ++next;
    }
    limits_[at] = next << (kLongestCode - length);
    next <<= 1;
  }
  if (use == Use::kCoefficients) {
    pair_up();
    fill_strides(symbols);
  }
  return true;
}

void HuffmanTable::fill(std::uint32_t code, int length, std::uint8_t symbol) {
  const auto code_bits = static_cast<unsigned int>(length);
  const int number_bits = symbol & 0xF;
  const int free_bits = kLookupBits - length;
  const bool ends = use_ == Use::kCoefficients && symbol == kEndOfBlockSymbol;
  const std::uint32_t first = code << free_bits;
  for (std::uint32_t rest = 0; rest < std::uint32_t{1} << free_bits; ++rest) {
    HuffmanEntry& to = lookup_[first + rest];
    if (ends) {
      to = HuffmanEntry::end_of_block(code_bits);
    } else if (number_bits > free_bits) {
      to = HuffmanEntry::incomplete(symbol, code_bits);
    } else {
      const std::int32_t number = extend(rest >> (free_bits - number_bits), number_bits);
      to = HuffmanEntry::number(symbol >> 4, code_bits + static_cast<unsigned int>(number_bits), number);
    }
  }
}

// Looks up what follows a number with zeros for the bits beyond the table's, and uses it if it does not depend on them.
void HuffmanTable::pair_up() {
  const auto single = lookup_;
  for (std::size_t i = 0; i < lookup_.size(); ++i) {
    const HuffmanEntry first = single[i];
    if (first.bits() == 0 || first.places() > HuffmanEntry::kEndOfBlock) continue;
    const HuffmanEntry second = single[(i << first.bits()) % lookup_.size()];
    const unsigned int bits = first.bits() + second.bits();
    if (second.bits() > 0 && bits <= kLookupBits) lookup_[i] = HuffmanEntry::pair(first, second);
  }
}

// Excludes strides of a whole block: they can be used nowhere, and with the end of a block after them the condition
// would hold at the last place.
void HuffmanTable::fill_strides(const Symbols& symbols) {
  for (std::size_t i = 0; i < kLookups; ++i) {
    unsigned int bits = 0;
    unsigned int places = 0;
    while (bits < kLookupBits && places < HuffmanEntry::kEndOfBlock) {
      const auto [symbol, code_bits] = symbols[(i << bits) % kLookups];
      if (code_bits == 0 || bits + code_bits > kLookupBits) break;
      const bool ends = symbol == kEndOfBlockSymbol;
      const unsigned int further = ends ? HuffmanEntry::kEndOfBlock + 1 : (symbol >> 4) + 1U;
      if (!ends && places + further >= kBlockSize) break;
      bits += code_bits + (symbol & 0xFU);
      places += further;
    }
    strides_[i] = {};
    if (bits > 0) strides_[i] = {.bits = static_cast<std::uint8_t>(bits), .places = static_cast<std::uint8_t>(places)};
  }
}

HuffmanEntry HuffmanTable::next_symbol(std::uint64_t bits, int shortest) const {
  const auto top = static_cast<std::uint32_t>(bits >> (64 - kLongestCode));
  for (int length = shortest; length <= kLongestCode; ++length) {
    const auto at = static_cast<std::size_t>(length);
    if (top >= limits_[at]) continue;
    const std::int32_t index = offsets_[at] + static_cast<std::int32_t>(top >> (kLongestCode - length));
    return HuffmanEntry::incomplete(code_.symbols[static_cast<std::size_t>(index)], static_cast<unsigned int>(length));
  }
  return {};
}

// The next bits, the first one on top. Below the `count` valid bits are bits that the next refill writes again (F.
// Giesen, "Reading bits in far too many ways", part 2, variant 4).
struct ScanDecoder::Bits {
  const std::uint8_t* next = nullptr;
  std::uint64_t bits = 0;
  unsigned int count = 0;

  void refill() {
    bits |= load_big_endian(next) >> count;
    next += (63 - count) >> 3;
    count |= kRefilledBits;
  }

  // The position of the next bit, counted from `begin`.
  std::size_t position(const std::uint8_t* begin) const { return 8 * static_cast<std::size_t>(next - begin) - count; }

  void drop(unsigned int n) {
    bits <<= n;
    count -= n;
  }

  // Reads the number after a symbol, whose code has been read.
  std::int32_t number(unsigned int length) {
    if (length == 0) return 0;
    const auto number = static_cast<std::uint32_t>(bits >> (64 - length));
    drop(length);
    return extend(number, static_cast<int>(length));
  }

  // Reads the difference of the first coefficient from that of the previous block, or kNoDifference.
  std::int32_t difference(const HuffmanTable& table) {
    const HuffmanEntry entry = table.entry(bits);
    if (entry.bits() > 0) {
      drop(entry.bits());
      return entry.first_value();
    }
    const HuffmanEntry symbol = table.next_symbol(bits);
    if (symbol.code_bits() == 0) return kNoDifference;
    drop(symbol.code_bits());
    return number(symbol.number_bits());
  }

  // Reads one symbol if the entry is incomplete or leads out of the block, because what follows the last coefficient of
  // a block belongs to the next one. Returns the place after it, or kNowhere.
  unsigned int coefficient(const HuffmanTable& table, HuffmanEntry entry, unsigned int place, std::int16_t* to) {
    if (entry.bits() > 0) {
      entry = table.next_symbol(bits);
    } else if (entry.code_bits() == 0) {
      entry = table.next_symbol(bits, HuffmanTable::kLookupBits + 1);
    }
    if (entry.code_bits() == 0) return kNowhere;
    drop(entry.code_bits());
    if (entry.run() == 0 && entry.number_bits() == 0) return HuffmanEntry::kEndOfBlock;
    place += entry.run();
    if (place >= kBlockSize) return kNowhere;
    to[kNaturalOrder[place]] = static_cast<std::int16_t>(number(entry.number_bits()));
    return place + 1;
  }
};

bool ScanDecoder::start(std::span<const std::byte> data, const ScanLayout& layout) {
  const std::size_t end = scan_end(data, layout);
  if (end == kNoEnd) return false;
  layout_ = layout;
  const std::size_t room = end + kPadding;
  if (bytes_.size() < room || bytes_.size() > kKeptBytes) {
    bytes_ = {};  // rather than copied
    bytes_.resize(room);
  }
  if (ends_.capacity() * sizeof ends_[0] > kKeptBytes) ends_ = {};
  copy(data.first(end));
  segment_ = 0;
  position_ = 0;
  mcus_left_ = layout.restart_interval;
  passed_ = 0;
  predictions_ = {};
  return true;
}

void ScanDecoder::copy(std::span<const std::byte> scan) {
  const auto* from = bytes_of(scan);
  const std::uint8_t* const end = from + scan.size();
  std::uint8_t* to = bytes_.data();
  ends_.clear();
  while (const std::uint8_t* const found = find_0xff(from, end)) {
    const std::uint8_t code = found[1];
    const auto size = static_cast<std::size_t>(found - from) + (code == 0 ? 1 : 0);
    std::memcpy(to, from, size);
    to += size;
    from = found + (code == 0xFF ? 1 : 2);
    if (is_restart(code)) ends_.push_back(static_cast<std::size_t>(to - bytes_.data()));
  }
  const auto size = static_cast<std::size_t>(end - from);
  std::memcpy(to, from, size);
  to += size;
  ends_.push_back(static_cast<std::size_t>(to - bytes_.data()));
  std::memset(to, 0, kPadding);
}

bool ScanDecoder::next_segment() noexcept {
  if (segment_ + 1 == ends_.size()) return false;
  const std::size_t end = 8 * ends_[segment_];
  // If all MCUs were read, only the rest of the last byte is left of the segment.
  if (passed_ == 0 && end - position_ >= 8) return false;
  passed_ = 0;
  ++segment_;
  position_ = end;
  mcus_left_ = layout_.restart_interval;
  predictions_ = {};
  return true;
}

// Sets the component's prediction, which is the first coefficient of the block.
LIBTRAIN_INLINED bool ScanDecoder::read_difference(Bits& bits, const ScanLayout::Block& block) noexcept {
  bits.refill();
  const std::int32_t difference = bits.difference(difference_tables_[block.difference_table]);
  const std::int32_t first = predictions_[block.component] + difference;
  if (first != static_cast<std::int16_t>(first)) return false;  // or kNoDifference
  predictions_[block.component] = first;
  return true;
}

// Inlined into decode_mcu(), so that `bits` stay in registers.
LIBTRAIN_INLINED bool ScanDecoder::decode_block(Bits& bits, const ScanLayout::Block& block, std::int16_t* to) noexcept {
  if (!read_difference(bits, block)) return false;
  const HuffmanTable& coefficients = coefficient_tables_[block.coefficient_table];
  unsigned int place = 1;
  while (place < kBlockSize) {
    bits.refill();
    for (int i = 0; i < kEntriesPerRefill; ++i) {
      const HuffmanEntry entry = coefficients.entry(bits.bits);
      const unsigned int next = place + entry.places();
      if (next % HuffmanEntry::kEndOfBlock > kBlockSize) {
        place = bits.coefficient(coefficients, entry, place, to);
        if (place == kNowhere) return false;
        break;
      }
      bits.drop(entry.bits());
      to[kNaturalOrder[place + entry.first_place()]] = entry.first_value();
      to[kNaturalOrder[place + entry.second_place()]] = entry.second_value();
      place = next;
      if (place >= kBlockSize) break;
    }
  }
  to[0] = static_cast<std::int16_t>(predictions_[block.component]);
  return true;
}

LIBTRAIN_INLINED bool ScanDecoder::pass_block(Bits& bits, const ScanLayout::Block& block) noexcept {
  if (!read_difference(bits, block)) return false;
  const HuffmanTable& coefficients = coefficient_tables_[block.coefficient_table];
  std::int16_t unwanted[kBlockSize];
  unsigned int place = 1;
  while (place < kBlockSize) {
    bits.refill();
    for (int i = 0; i < kStridesPerRefill; ++i) {
      const HuffmanStride stride = coefficients.stride(bits.bits);
      const unsigned int next = place + stride.places;
      if (next % HuffmanEntry::kEndOfBlock > kBlockSize) {
        place = bits.coefficient(coefficients, coefficients.entry(bits.bits), place, unwanted);
        if (place == kNowhere) return false;
        break;
      }
      bits.drop(stride.bits);
      place = next;
      if (place >= kBlockSize) break;
    }
  }
  return true;
}

bool ScanDecoder::is_in_segment(const Bits& bits) const noexcept {
  return bits.position(bytes_.data()) <= 8 * ends_[segment_];
}

bool ScanDecoder::pass_mcu(Bits& bits) noexcept {
  for (std::size_t i = 0; i < layout_.block_count; ++i) {
    if (!pass_block(bits, layout_.blocks[i])) return false;
  }
  return is_in_segment(bits);
}

bool ScanDecoder::decode_mcu(std::int16_t* const* blocks) noexcept {
  const bool has_segments = layout_.restart_interval > 0;
  if (has_segments) {
    if (mcus_left_ == 0 && !next_segment()) return false;
    --mcus_left_;
  }
  if (blocks == nullptr) {
    ++passed_;
    if (has_segments) return true;  // read only if a later one is decoded
  }
  Bits bits{.next = bytes_.data() + position_ / 8};
  bits.refill();
  bits.drop(static_cast<unsigned int>(position_ % 8));
  for (; passed_ > 0; --passed_) {
    if (!pass_mcu(bits)) return false;
  }
  for (std::size_t i = 0; blocks != nullptr && i < layout_.block_count; ++i) {
    if (!decode_block(bits, layout_.blocks[i], blocks[i])) return false;
  }
  position_ = bits.position(bytes_.data());
  return is_in_segment(bits);
}

std::optional<ScanLayout> prepare_scan(const jpeg_decompress_struct& info, ScanDecoder& decoder) {
  const bool sequential = info.progressive_mode == FALSE && info.arith_code == FALSE;
  if (!sequential || info.comps_in_scan != info.num_components) return std::nullopt;
  ScanLayout layout;
  if (info.restart_interval > 0) {
    const std::size_t mcus = std::size_t{info.MCUs_per_row} * info.MCU_rows_in_scan;
    layout.restart_interval = info.restart_interval;
    layout.segments = (mcus + info.restart_interval - 1) / info.restart_interval;
  }
  layout.block_count = static_cast<std::size_t>(info.blocks_in_MCU);
  for (std::size_t i = 0; i < layout.block_count; ++i) {
    const int member = info.MCU_membership[i];
    const jpeg_component_info& component = *info.cur_comp_info[member];
    ScanLayout::Block& block = layout.blocks[i];
    block.component = static_cast<std::uint8_t>(member);
    block.difference_table = static_cast<std::uint8_t>(component.dc_tbl_no);
    block.coefficient_table = static_cast<std::uint8_t>(component.ac_tbl_no);
    if (!build(decoder.difference_table(block.difference_table), info.dc_huff_tbl_ptrs[component.dc_tbl_no],
               HuffmanTable::Use::kDifference) ||
        !build(decoder.coefficient_table(block.coefficient_table), info.ac_huff_tbl_ptrs[component.ac_tbl_no],
               HuffmanTable::Use::kCoefficients)) {
      return std::nullopt;
    }
  }
  return layout;
}

}  // namespace libtrain::data::detail
