#include <libtrain/comm/detail/call.hpp>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce:
      return "all_reduce";
    case CallKind::reduce:
      return "reduce";
    case CallKind::broadcast:
      return "broadcast";
    case CallKind::all_gather:
      return "all_gather";
    case CallKind::reduce_scatter:
      return "reduce_scatter";
    case CallKind::all_to_all:
      return "all_to_all";
    case CallKind::barrier:
      return "barrier";
    case CallKind::all_gather_bytes:
      return "all_gather_bytes";
    case CallKind::broadcast_bytes:
      return "broadcast_bytes";
    case CallKind::split:
      return "split";
  }
  return "unknown";
}

}  // namespace

std::string to_string(const Call& call) {
  std::string result{name_of(call.kind)};
  if (call.type) result += text(" of ", call.count, " ", libtrain::to_string(*call.type));
  if (call.op) result += text(" (", libtrain::to_string(*call.op), ")");
  if (call.root) result += text(call.kind == CallKind::reduce ? " to rank " : " from rank ", *call.root);
  return result;
}

std::string who_called_what(const std::vector<std::string>& calls) {
  std::vector<std::string> parts;
  for (const auto& [call, ranks] : group_ranks(calls)) parts.push_back(text(ranks_in_words(ranks), " called ", call));
  return join(parts, "; ");
}

std::uint64_t fingerprint(const Call& call, std::uint64_t sequence) {
  // A missing value differs from all values.
  const auto type = call.type ? static_cast<std::uint64_t>(*call.type) : 0xFFu;
  const auto op = call.op ? static_cast<std::uint64_t>(*call.op) : 0xFFu;
  const auto root = call.root ? static_cast<std::uint64_t>(static_cast<std::uint32_t>(*call.root)) : 0xFFFFFFFFu;
  auto hash = mix_bits(sequence + kGoldenRatioBits);
  hash = mix_bits(hash ^ call.count);
  return mix_bits(hash ^ (static_cast<std::uint64_t>(call.kind) | type << 8 | op << 16 | root << 24));
}

}  // namespace libtrain::detail
