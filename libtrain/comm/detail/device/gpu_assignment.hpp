#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/comm/device_choice.hpp>

namespace libtrain::detail {

/// What one rank knows of its GPUs, for the other ranks.
struct RankGpus {
  DeviceChoice choice = DeviceChoice::automatic;
  std::string host;                ///< HostIdentity::to_text(), or a name that the user has given
  std::string host_name;           ///< for messages
  std::optional<int> local_rank;   ///< from the launcher
  std::vector<std::string> uuids;  ///< of the GPUs that the rank sees, in the order of their indices
  std::string problem;             ///< why it sees none, see VisibleGpus
  bool is_broken = false;

  bool operator==(const RankGpus&) const = default;
};

/// Converts the facts of a rank to a message for the other ranks, and back. `problem` may be any text, the other texts
/// must not contain tabs. Throws CommunicationError for anything else than such a message.
std::string to_message(const RankGpus& gpus);
RankGpus gpus_from_message(const std::string& message);

/// The device index of each rank.
struct GpuAssignment {
  std::vector<int> indices = {};  ///< empty if all ranks compute on the CPU
  /// Why all ranks compute on the CPU although the choice was left to the library.
  std::string why_cpu = {};
  bool is_warning = false;  ///< the machines seem to have GPUs, but this build cannot use them
};

/// Assigns GPUs to ranks, with the same result on every rank: element r of `ranks` is what rank r knows.
///
/// The index is the local rank modulo the number of visible GPUs; the local rank is the launcher's, or, if any rank of
/// a host has none, the position of a rank among the ranks of its host. If a rank of lower number has the GPU already
/// and another GPU that the rank sees is free, the rank gets the first of these. So each rank has a GPU of its own if
/// there are enough, whether the launcher shows each rank all GPUs of its host or only its own; otherwise ranks share.
///
/// `reason` is what demands GPUs if the choice is cuda: "--device cuda". Throws UsageError if ranks have chosen
/// differently, EnvironmentError if ranks lack a GPU that the choice demands or that other ranks have; both with scope
/// ErrorScope::all_ranks.
GpuAssignment assign_gpus(const std::vector<RankGpus>& ranks, std::string_view reason);

}  // namespace libtrain::detail
