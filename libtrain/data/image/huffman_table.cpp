#include <libtrain/data/image/huffman_table.hpp>

#include <algorithm>

namespace libtrain::data::detail {

namespace {

// The greatest numbers of a picture of 8 bits have 11 and 10 bits (T.81, tables F.1 and F.2).
constexpr int kMaximumDifferenceBits = 11;
constexpr int kMaximumCoefficientBits = 10;
constexpr unsigned int kBlockSize = 64;
constexpr std::uint8_t kEndOfBlockSymbol = 0x00;
constexpr std::uint8_t kSixteenZeros = 0xF0;

bool has_meaning(std::uint8_t symbol, HuffmanTable::Use use) {
  if (use == HuffmanTable::Use::kDifference) return symbol <= kMaximumDifferenceBits;
  const int bits = symbol & 0xF;
  return bits == 0 ? symbol == kEndOfBlockSymbol || symbol == kSixteenZeros : bits <= kMaximumCoefficientBits;
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

// What follows a number is looked up with zeros for the bits beyond the table's, and counts where it does not need
// them.
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

// A stride of a whole block fits nowhere, and with the end of a block behind it would look at the last place as if it
// did.
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

}  // namespace libtrain::data::detail
