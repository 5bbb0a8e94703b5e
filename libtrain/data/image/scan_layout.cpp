#include <libtrain/data/image/scan_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace libtrain::data::detail {

namespace {

bool build(HuffmanTable& table, const JHUFF_TBL* from, HuffmanTable::Use use) {
  if (from == nullptr) return false;
  HuffmanCode code;
  std::copy(std::begin(from->bits) + 1, std::end(from->bits), code.counts.begin() + 1);
  std::copy(std::begin(from->huffval), std::end(from->huffval), code.symbols.begin());
  return table.build(code, use);
}

}  // namespace

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
