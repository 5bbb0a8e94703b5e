#include <libtrain/sync/detail/round_status.hpp>

#include <algorithm>
#include <cstring>
#include <sstream>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMaxNames = 20;

// One line for each entry: a letter for the list, then the text. Names and sentences have no newlines.
constexpr char kFailure = 'f';
constexpr char kMissing = 'm';
constexpr char kNonFinite = 'n';

std::string in_quotes(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (std::size_t index = 0; index < std::min(names.size(), kMaxNames); ++index) {
    quoted.push_back("'" + names[index] + "'");
  }
  if (names.size() > kMaxNames) quoted.push_back(text("and ", names.size() - kMaxNames, " more"));
  return join(quoted, ", ");
}

// "rank 1: a; ranks 0, 2: b", equal texts together, in the order of their first ranks; empty texts are left out.
std::string by_rank(const std::vector<std::string>& texts) {
  const auto groups = group_ranks(texts);
  if (groups.size() == 1) return groups.front().first;  // the same on all ranks: no need to list them
  std::vector<std::string> parts;
  for (const auto& [said, ranks] : groups) {
    if (!said.empty()) parts.push_back(text(ranks_in_words(ranks), ": ", said));
  }
  return join(parts, "; ");
}

template <typename TextOf>
std::string by_rank(const std::vector<RoundReport>& reports, const TextOf& text_of) {
  std::vector<std::string> texts;
  for (const auto& report : reports) texts.push_back(text_of(report));
  return by_rank(texts);
}

}  // namespace

RoundStatus::RoundStatus(std::size_t parameters, Communicator& communicator)
    : communicator_(communicator),
      memory_(communicator.allocate_on_host(static_cast<std::int64_t>(kFirstParameter + parameters), at::kByte)),
      bytes_(memory_.mutable_data_ptr<std::uint8_t>()) {
  set_owner("");
  clear();
}

void RoundStatus::set_owner(const std::string& owner) {
  label_ = std::make_shared<const std::string>("the status of a round" + owner);
}

void RoundStatus::clear() {
  std::memset(bytes_, 0, memory_.nbytes());
}

void RoundStatus::set_replica(std::uint64_t digest) {
  for (std::size_t index = 0; index < sizeof digest; ++index) {
    const auto byte = static_cast<std::uint8_t>(digest >> 8 * index);
    bytes_[kDigest + index] = byte;
    bytes_[kDigest + sizeof digest + index] = static_cast<std::uint8_t>(~byte);
  }
}

// The maximum of a byte and the maximum of its complement add up to 255 if all ranks have the same byte.
bool RoundStatus::replicas_differ() const {
  const auto* const digest = bytes_ + kDigest;
  const auto* const complement = digest + sizeof(std::uint64_t);
  const bool is_set = std::any_of(digest, complement + sizeof(std::uint64_t), [](std::uint8_t byte) { return byte; });
  for (std::size_t index = 0; is_set && index < sizeof(std::uint64_t); ++index) {
    if (digest[index] + complement[index] != 0xff) return true;
  }
  return false;
}

void RoundStatus::exchange() {
  if (communicator_.world_size() == 1) return;
  const CallPurpose purpose{communicator_, label_};
  work_ = communicator_.all_reduce(memory_, ReduceOp::maximum);
}

void RoundStatus::wait() {
  work_.wait();
}

std::vector<RoundReport> gather_reports(const RoundReport& mine, Communicator& communicator) {
  const CallPurpose purpose{communicator, "the reports of a round"};
  std::vector<RoundReport> reports;
  for (const auto& bytes : communicator.all_gather_bytes(mine.to_bytes())) {
    reports.push_back(RoundReport::from_bytes(bytes));
  }
  return reports;
}

std::string RoundReport::to_bytes() const {
  std::string bytes;
  if (!failure.empty()) bytes += kFailure + failure + '\n';
  for (const auto& name : missing) bytes += kMissing + name + '\n';
  for (const auto& name : non_finite) bytes += kNonFinite + name + '\n';
  return bytes;
}

RoundReport RoundReport::from_bytes(const std::string& bytes) {
  RoundReport report;
  std::istringstream lines{bytes};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const auto entry = line.substr(1);
    if (line.front() == kFailure) report.failure = entry;
    if (line.front() == kMissing) report.missing.push_back(entry);
    if (line.front() == kNonFinite) report.non_finite.push_back(entry);
  }
  return report;
}

std::string describe_failures(const std::vector<RoundReport>& reports) {
  return by_rank(reports, [](const RoundReport& report) { return report.failure; });
}

std::string describe_missing(const std::vector<RoundReport>& reports, std::size_t parameters) {
  const auto named = by_rank(reports, [&](const RoundReport& report) {
    const auto& names = report.missing;
    return names.empty() ? "" : text(names.size(), " of ", parameters, " parameters (", in_quotes(names), ")");
  });
  if (named.empty()) return {};
  return text("backward() gave no gradient to ", named.starts_with("rank") ? "some parameters: " : "", named,
              ". Use every parameter in the loss, freeze those that are not trained with set_requires_grad(false), or "
              "choose UnusedParameters::allowed.");
}

std::string describe_non_finite(const std::vector<RoundReport>& reports, std::int64_t round) {
  const auto named = by_rank(reports, [](const RoundReport& report) { return in_quotes(report.non_finite); });
  if (named.empty()) return {};
  return text("Gradients of round ", round, " hold NaN or infinity: ", named, ".");
}

}  // namespace libtrain::detail
