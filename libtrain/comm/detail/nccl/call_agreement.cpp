#include <libtrain/comm/detail/nccl/call_agreement.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

#ifdef NDEBUG
constexpr std::uint64_t kFirst = 16;
constexpr std::uint64_t kEvery = 64;
#else
constexpr std::uint64_t kFirst = 0;
constexpr std::uint64_t kEvery = 1;
#endif

}  // namespace

std::uint64_t CallAgreement::next_collective(const Call& call, const CallOptions& options) {
  const auto number = collectives_++;
  if (number < kFirst || number % kEvery == 0) compare(call, options);
  return number;
}

void CallAgreement::compare(const Call& call, const CallOptions& options) {
  const auto mine = text(to_string(call), " (after ", collectives_, " collectives)");
  const auto calls = control_->all_gather_bytes(mine, options);
  if (all_equal(calls)) return;
  throw CommunicationError(text("The ranks called different collectives: ", who_called_what(calls),
                                ". Every rank must make the same calls in the same order."),
                           ErrorScope::all_ranks);
}

}  // namespace libtrain::detail
