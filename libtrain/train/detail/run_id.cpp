#include <libtrain/train/detail/run_id.hpp>

#include <iomanip>
#include <random>
#include <sstream>

namespace libtrain::detail {

std::string agree_on_run_id(Communicator& communicator) {
  std::random_device device;
  std::ostringstream id;
  id << std::hex << std::setfill('0');
  for (int word = 0; word < 4; ++word) id << std::setw(8) << device();
  return communicator.broadcast_bytes(id.str(), 0);
}

}  // namespace libtrain::detail
