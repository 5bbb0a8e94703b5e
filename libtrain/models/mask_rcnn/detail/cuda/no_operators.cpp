#include <libtrain/models/mask_rcnn/detail/cuda/link.hpp>

namespace libtrain::models::detail {

void link_cuda_operators() {}

}  // namespace libtrain::models::detail
