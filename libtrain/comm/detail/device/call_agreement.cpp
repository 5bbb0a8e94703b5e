#include <libtrain/comm/detail/device/call_agreement.hpp>

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

std::vector<std::string> CallAgreement::exchange(const Call& call, const std::string& mine,
                                                 const CallOptions& options) {
  const CallPurpose purpose{*control_, "comparing calls"};
  try {
    return control_->all_gather_bytes(mine, options);
  } catch (const CommunicationError& error) {
    throw CommunicationError(text(to_string(call), " (collective number ", collectives_, ") failed: ", error.what()),
                             error.scope());
  }
}

std::uint64_t CallAgreement::next_collective(const Call& call, const CallOptions& options, const std::string& label) {
  const auto number = collectives_++;
  if (number < kFirst || number % kEvery == 0) compare(call, options, label);
  return number;
}

void CallAgreement::compare(const Call& call, const CallOptions& options, const std::string& label) {
  const auto mine =
      text(to_string(call), label.empty() ? "" : " for ", label, " (after ", collectives_, " collectives)");
  const auto calls = exchange(call, mine, options);
  if (all_equal(calls)) return;
  throw CommunicationError(text("The ranks called different collectives: ", who_called_what(calls),
                                ". Every rank must make the same calls in the same order."),
                           ErrorScope::all_ranks);
}

}  // namespace libtrain::detail
