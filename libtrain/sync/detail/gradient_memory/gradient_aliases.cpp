#include <libtrain/sync/detail/gradient_memory/gradient_aliases.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <torch/csrc/autograd/variable.h>

namespace libtrain::detail {

namespace {

// A tensor with views, and the number of known references from its views to it.
struct Base {
  const at::TensorBase* tensor = nullptr;
  std::size_t references = 0;
};

void count_reference(const at::TensorBase& tensor, std::vector<Base>& bases) {
  auto found = std::find_if(bases.begin(), bases.end(), [&](const Base& base) {
    return base.tensor->unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl();
  });
  if (found == bases.end()) found = bases.insert(bases.end(), Base{.tensor = &tensor});
  ++found->references;
}

// A view refers to its base in its autograd metadata, once for each direction of differentiation.
void count_bases(const at::Tensor& view, std::vector<Base>& bases) {
  const auto* const meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr) return;
  if (meta->has_bw_view()) count_reference(meta->get_backward_view().base_, bases);
  if (meta->has_fw_view() && !meta->shared_view_info()) count_reference(meta->get_forward_view().base_, bases);
}

}  // namespace

// Each tensor of a storage holds a reference to it, so all tensors are known if their number is the storage's reference
// count; and only known views use a base if its reference count is their number.
bool is_alone_in_memory(const at::Tensor& gradient, const at::Tensor& incoming) {
  const auto users = gradient.storage().use_count();
  if (users == 1) return gradient.use_count() == 1;
  const bool was_taken = incoming.defined() && !incoming.is_same(gradient) && incoming.has_storage() &&
                         incoming.storage().is_alias_of(gradient.storage());
  if (!was_taken || incoming.use_count() != 1 || gradient.use_count() != 1) return false;
  std::vector<Base> bases;
  count_bases(gradient, bases);
  count_bases(incoming, bases);
  const bool only_views = std::all_of(bases.begin(), bases.end(), [&](const Base& base) {
    return base.tensor->has_storage() && base.tensor->storage().is_alias_of(gradient.storage()) &&
           base.tensor->use_count() == base.references;
  });
  return only_views && users == 2 + bases.size();
}

}  // namespace libtrain::detail
