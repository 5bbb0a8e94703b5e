#include <libtrain/comm/nccl/call_agreement.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

#ifdef NDEBUG
constexpr std::uint64_t kFirst = 16;
constexpr std::uint64_t kEvery = 64;
#else
constexpr std::uint64_t kFirst = 0;
constexpr std::uint64_t kEvery = 1;
#endif

// Ranks grouped by what they called, so that a thousand ranks still give a message one can read.
std::string describe(const std::vector<std::string>& calls) {
  std::vector<std::string> parts;
  for (auto first = calls.begin(); first != calls.end();) {
    const auto next = std::find_if(first, calls.end(), [&](const auto& call) { return call != *first; });
    const auto from = first - calls.begin();
    const auto to = next - calls.begin() - 1;
    parts.push_back(text(from == to ? text("rank ", from) : text("ranks ", from, " to ", to), " called ", *first));
    first = next;
  }
  return join(parts, "; ");
}

}  // namespace

std::uint64_t CallAgreement::next_collective(const Call& call) {
  const auto number = collectives_++;
  if (number < kFirst || number % kEvery == 0) compare(call);
  return number;
}

void CallAgreement::compare(const Call& call) {
  const auto mine = text(to_string(call), " (after ", collectives_, " collectives)");
  const auto calls = control_->all_gather_bytes(mine);
  if (std::all_of(calls.begin(), calls.end(), [&](const auto& other) { return other == mine; })) return;
  throw CommunicationError(text("The ranks called different collectives: ", describe(calls),
                                ". Every rank must make the same calls in the same order."),
                           ErrorScope::all_ranks);
}

}  // namespace libtrain::detail
