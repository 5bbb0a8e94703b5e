#include <libtrain/models/roberta/packed_texts.hpp>

#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <libtrain/base/text.hpp>

namespace libtrain::models {

namespace {

void require_packable(bool is_right, const std::string& what) {
  if (!is_right) throw std::invalid_argument(what);
}

}  // namespace

at::Tensor PackedTexts::first_tokens() const {
  auto tokens = at::empty({size()}, at::kLong);
  auto* token = tokens.mutable_data_ptr<std::int64_t>();
  std::int64_t first = 0;
  for (const auto length : lengths) {
    *token++ = first;
    first += length;
  }
  return tokens;
}

PackedTexts packed_texts(const at::Tensor& ids, const at::Tensor& offsets) {
  require_packable(offsets.dim() == 1 && offsets.scalar_type() == at::kLong && offsets.size(0) >= 1,
                   text("Packed texts have offsets of type ", offsets.scalar_type(), " and shape [",
                        join(offsets.sizes(), ", "), "]. Give int64 [texts + 1]."));
  const auto on_host = offsets.cpu().contiguous();
  const auto* offset = on_host.const_data_ptr<std::int64_t>();
  PackedTexts texts{ids};
  for (std::int64_t k = 0; k + 1 < on_host.size(0); ++k) {
    require_packable(offset[k + 1] > offset[k], text("Offsets of packed texts go from ", offset[k], " to ",
                                                     offset[k + 1], " at text ", k, ". Each text has a token."));
    texts.lengths.push_back(offset[k + 1] - offset[k]);
  }
  require_packable(*offset == 0 && offset[texts.lengths.size()] == ids.numel(),
                   text("Packed texts have ", ids.numel(), " ids and offsets from ", *offset, " to ",
                        offset[texts.lengths.size()], ". Offsets begin with 0 and end with the number of ids."));
  return texts;
}

PackedTexts unpadded_texts(const at::Tensor& ids, const at::Tensor& mask, std::int64_t pad_id) {
  require_packable(ids.dim() == 2, text("Padded ids have the shape [", join(ids.sizes(), ", "),
                                        "]. Give [texts, tokens of the longest]."));
  PackedTexts texts{ids.reshape({-1}), std::vector<std::int64_t>(static_cast<std::size_t>(ids.size(0)), ids.size(1))};
  if (!mask.defined()) return texts;
  require_packable(mask.sizes() == ids.sizes(),
                   text("A batch has ids of the shape [", join(ids.sizes(), ", "), "] and a mask of the shape [",
                        join(mask.sizes(), ", "), "]. They must be the same."));
  const auto is_token = mask.ne(0);
  const auto counts = is_token.sum(1).cpu();
  const auto* count = counts.const_data_ptr<std::int64_t>();
  bool has_padding = false;
  for (std::size_t k = 0; k < texts.lengths.size(); ++k) {
    has_padding = has_padding || count[k] != texts.lengths[k];
    texts.lengths[k] = count[k];
  }
  if (!has_padding) return texts;
  const auto padding = is_token.logical_not().to(ids.device());
  const auto others = ids.masked_select(padding).ne(pad_id).sum().item<std::int64_t>();
  require_packable(others == 0, text("A batch's mask is 0 for ", others, " tokens whose id is not that of padding, ",
                                     pad_id, ". Give padding this id, or leave such tokens out."));
  texts.ids = ids.masked_select(padding.logical_not());
  return texts;
}

}  // namespace libtrain::models
