#include <libtrain/train/detail/run_id.hpp>

#include <array>
#include <cstdint>
#include <random>

#include <libtrain/base/detail/digits.hpp>

namespace libtrain::detail {

std::string agree_on_run_id(Communicator& communicator) {
  std::random_device device;
  std::array<std::uint8_t, 16> id{};
  for (auto& byte : id) byte = static_cast<std::uint8_t>(device());
  return communicator.broadcast_bytes(hexadecimal(id), 0);
}

}  // namespace libtrain::detail
