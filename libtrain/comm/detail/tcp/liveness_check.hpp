#pragma once

#include <optional>
#include <vector>

namespace libtrain::detail {

/// Finds the rank that made a deadline pass: every rank in the call answers with the rank that it waits for; one that
/// is stopped, computes or is busy elsewhere stays silent.
class LivenessCheck {
 public:
  static constexpr int kNoRank = -1;

  LivenessCheck(int world_size, int self, int waits_for) : answers_(static_cast<std::size_t>(world_size)), self_(self) {
    answered(self, waits_for);
  }

  void answered(int rank, int waits_for) { answers_[static_cast<std::size_t>(rank)] = waits_for; }

  bool complete() const { return silent().empty(); }

  /// The ranks that have not answered.
  std::vector<int> silent() const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < answers_.size(); ++rank) {
      if (!answers_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  /// The silent rank that this one waits for, perhaps through other ranks; std::nullopt if all of those answered. Ranks
  /// that have finished the call are silent, too, but no rank waits for them.
  std::optional<int> silent_rank() const {
    int rank = self_;
    for (std::size_t steps = 0; steps < answers_.size(); ++steps) {
      const auto& answer = answers_[static_cast<std::size_t>(rank)];
      if (!answer) return rank;
      if (*answer < 0 || *answer >= static_cast<int>(answers_.size())) return std::nullopt;
      rank = *answer;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::optional<int>> answers_;
  int self_;
};

}  // namespace libtrain::detail
