#include <libtrain/comm/detail/staged/host_registration.hpp>

namespace libtrain::detail {

std::shared_ptr<void> register_host_memory(void* /*data*/, std::size_t /*bytes*/, const at::Device& /*device*/) {
  return nullptr;
}

}  // namespace libtrain::detail
