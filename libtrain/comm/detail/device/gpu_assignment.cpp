#include <libtrain/comm/detail/device/gpu_assignment.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/hierarchy/host_layout.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

constexpr std::array<std::string_view, 3> kChoices{"auto", "cpu", "cuda"};  // in the order of DeviceChoice
constexpr std::size_t kGroupsInMessage = 4;

std::string_view name_of(DeviceChoice choice) {
  return kChoices[static_cast<std::size_t>(choice)];
}

bool has_gpu(const RankGpus& rank) {
  return !rank.uuids.empty();
}

// "rank 2 on node-8 has no usable GPU: ...; ranks 4 and 5 on node-9 have no usable GPU: ..."
std::string describe_ranks_without(const std::vector<RankGpus>& ranks) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> groups;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!has_gpu(ranks[rank])) {
      groups[{ranks[rank].host_name, ranks[rank].problem}].push_back(static_cast<int>(rank));
    }
  }
  std::vector<std::pair<std::vector<int>, std::string>> parts;
  for (const auto& [place, members] : groups) {
    const auto& [host, problem] = place;
    parts.emplace_back(members, text(ranks_in_words(members), " on ", host, members.size() == 1 ? " has" : " have",
                                     " no usable GPU: ", problem));
  }
  std::ranges::sort(parts);
  std::vector<std::string> lines;
  std::size_t others = 0;
  for (const auto& [members, line] : parts) {
    if (lines.size() < kGroupsInMessage) {
      lines.push_back(line);
    } else {
      others += members.size();
    }
  }
  if (others > 0) lines.push_back(text("and ", others, " other ranks have none"));
  return join(lines, "; ");
}

void require_one_choice(const std::vector<RankGpus>& ranks) {
  const auto other = std::ranges::find_if(ranks, [&](const auto& rank) { return rank.choice != ranks.front().choice; });
  if (other == ranks.end()) return;
  throw UsageError(
      text("The ranks were started with different devices: rank 0 with --device ", name_of(ranks.front().choice),
           ", rank ", other - ranks.begin(), " with --device ", name_of(other->choice), ". Give all ranks the same."),
      ErrorScope::all_ranks);
}

// The launcher's, or the position among the ranks of the host.
std::vector<int> local_ranks(const std::vector<RankGpus>& ranks) {
  std::vector<std::string> hosts;
  for (const auto& rank : ranks) hosts.push_back(rank.host);
  const HostLayout layout{hosts};
  std::vector<int> found;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const auto& members = layout.members(layout.host_of(rank));
    const bool launcher_knows = std::ranges::all_of(
        members, [&](int member) { return ranks[static_cast<std::size_t>(member)].local_rank.has_value(); });
    found.push_back(launcher_knows ? *ranks[static_cast<std::size_t>(rank)].local_rank : layout.local_rank_of(rank));
  }
  return found;
}

std::vector<int> choose_indices(const std::vector<RankGpus>& ranks) {
  const auto preferred = local_ranks(ranks);
  std::set<std::string> taken;
  std::vector<int> indices;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& uuids = ranks[rank].uuids;
    const auto is_free = [&](const std::string& uuid) { return !taken.contains(uuid); };
    auto chosen = uuids.begin() + preferred[rank] % static_cast<int>(uuids.size());
    if (!is_free(*chosen)) {
      if (const auto free = std::ranges::find_if(uuids, is_free); free != uuids.end()) chosen = free;
    }
    taken.insert(*chosen);
    indices.push_back(static_cast<int>(chosen - uuids.begin()));
  }
  return indices;
}

}  // namespace

std::string to_message(const RankGpus& gpus) {
  return text(static_cast<int>(gpus.choice), '\t', gpus.host, '\t', gpus.host_name, '\t',
              gpus.local_rank ? std::to_string(*gpus.local_rank) : "", '\t', join(gpus.uuids, ","), '\t',
              gpus.is_broken ? 1 : 0, '\t', gpus.problem);
}

RankGpus gpus_from_message(const std::string& message) {
  std::array<std::string, 6> fields;
  std::size_t begin = 0;
  bool is_valid = true;
  for (auto& field : fields) {
    const auto end = message.find('\t', begin);
    is_valid = is_valid && end != std::string::npos;
    if (!is_valid) break;
    field = message.substr(begin, end - begin);
    begin = end + 1;
  }
  const auto& [choice, host, host_name, local_rank, uuids, broken] = fields;
  const auto number = parse_integer(choice, 0, 2);
  const auto local = parse_integer(local_rank, 0, std::numeric_limits<int>::max());
  if (!is_valid || !number || (!local && !local_rank.empty())) {
    throw CommunicationError(
        "A rank sent an invalid description of its GPUs. Run the same build of libtrain on every rank.");
  }
  RankGpus gpus{.choice = static_cast<DeviceChoice>(*number), .host = host, .host_name = host_name};
  if (local) gpus.local_rank = static_cast<int>(*local);
  std::istringstream list{uuids};
  for (std::string uuid; std::getline(list, uuid, ',');) gpus.uuids.push_back(uuid);
  gpus.problem = message.substr(begin);
  gpus.is_broken = broken == "1";
  return gpus;
}

GpuAssignment assign_gpus(const std::vector<RankGpus>& ranks, std::string_view reason) {
  require_one_choice(ranks);
  const auto choice = ranks.front().choice;
  if (choice == DeviceChoice::cpu) return {};
  const auto count = static_cast<std::size_t>(std::ranges::count_if(ranks, has_gpu));
  if (count == ranks.size()) return {.indices = choose_indices(ranks)};
  if (choice == DeviceChoice::cuda) {
    throw EnvironmentError(text("A GPU is needed on every rank (", reason, "), but ", describe_ranks_without(ranks),
                                ". Correct this, or use --device cpu."),
                           ErrorScope::all_ranks);
  }
  if (count > 0) {
    throw EnvironmentError(
        text("Only ", count, " of ", ranks.size(), " ranks have a GPU: ", describe_ranks_without(ranks),
             ". Give every rank a GPU, or use --device cpu to train on the CPU."),
        ErrorScope::all_ranks);
  }
  const auto broken = std::ranges::find_if(ranks, &RankGpus::is_broken);
  const bool is_warning = broken != ranks.end();
  return {.indices = {}, .why_cpu = (is_warning ? *broken : ranks.front()).problem, .is_warning = is_warning};
}

}  // namespace libtrain::detail
