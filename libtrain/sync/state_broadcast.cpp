#include <libtrain/sync/state_broadcast.hpp>

#include <sstream>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain {

namespace {

std::string type_of(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

// One line for each parameter, with all properties that must be equal.
std::vector<std::string> signature_of(const torch::optim::Optimizer& optimizer) {
  std::vector<std::string> lines;
  const auto& groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto& parameters = groups[group].params();
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      lines.push_back(text("parameter ", index, " of group ", group, " of a ", type_of(optimizer), " with ",
                           groups.size(), groups.size() == 1 ? " group" : " groups", ", of shape ",
                           parameters[index].sizes(), " and dtype ", parameters[index].scalar_type()));
    }
  }
  return lines;
}

void require_same_optimizer(const torch::optim::Optimizer& optimizer, Communicator& communicator) {
  detail::require_agreement(
      {.subject = "The optimizer", .unit = "parameters", .advice = "Create the same optimizer on every rank."},
      signature_of(optimizer), communicator);
}

std::optional<at::Device> device_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) return group.params().front().device();
  }
  return {};
}

// The archive names parameters by their addresses on `root`; Optimizer::load finds the position of each by them.
void load_state(torch::optim::Optimizer& optimizer, const char* data, std::size_t size) {
  torch::serialize::InputArchive archive;
  archive.load_from(data, size, device_of(optimizer));
  if (archive.keys().empty()) {
    throw UsageError(text(type_of(optimizer), " saves nothing. Implement its save() and load()."));
  }
  // Parameters without state on `root` would keep theirs.
  optimizer.state().clear();
  optimizer.load(archive);
}

}  // namespace

namespace detail {

void broadcast_serialized(const std::string& what, const Save& save, const Load& load, Communicator& communicator,
                          int root) {
  check_root(communicator, root, text("broadcast of the ", what));
  if (communicator.world_size() == 1) return;
  const CallPurpose purpose{communicator, text("the broadcast of the ", what)};
  std::string bytes;
  const bool is_root = communicator.rank() == root;
  const auto step = text("Broadcasting the ", what);
  run_together(communicator, step, [&] {
    if (!is_root) return;
    std::ostringstream stream;
    save(stream);
    bytes = std::move(stream).str();
  });
  const auto received = communicator.broadcast_bytes(bytes, root);
  run_together(communicator, step, [&] {
    if (!is_root) load(received.data(), received.size());
  });
}

}  // namespace detail

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, Communicator& communicator, int root) {
  const CallPurpose purpose{communicator, "broadcast_optimizer_state()"};
  require_same_optimizer(optimizer, communicator);
  detail::broadcast_serialized(
      "optimizer's state", [&](std::ostream& stream) { torch::save(optimizer, stream); },
      [&](const char* data, std::size_t size) { load_state(optimizer, data, size); }, communicator, root);
}

}  // namespace libtrain
