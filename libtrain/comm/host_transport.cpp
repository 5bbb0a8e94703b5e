#include <libtrain/comm/host_transport.hpp>

#include <libtrain/base/text.hpp>

namespace libtrain {

std::string HostTransport::describe() const {
  return text(world_size(), " ranks over ", name());
}

}  // namespace libtrain

namespace libtrain::detail {

std::string missing_ranks(const std::vector<std::string>& ranks) {
  return text(join(ranks, " and "), " did not come before the deadline: stopped, unreachable or far behind.");
}

}  // namespace libtrain::detail
