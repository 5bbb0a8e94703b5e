#include <libtrain/sync/model_signature.hpp>

#include <algorithm>
#include <sstream>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

std::string describe(const std::string& kind, const std::string& name, const at::Tensor& tensor) {
  return text(kind, " '", name, "' of shape ", tensor.sizes(), " and dtype ", tensor.scalar_type(),
              tensor.requires_grad() || kind == "buffer" ? "" : ", frozen");
}

std::vector<std::string> lines_of(const std::string& joined) {
  std::vector<std::string> lines;
  std::istringstream stream{joined};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_or_nothing(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? lines[index] : "nothing (it has " + std::to_string(lines.size()) + " tensors)";
}

}  // namespace

namespace detail {

std::vector<std::string> model_signature(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) lines.push_back(describe("parameter", item.key(), item.value()));
  for (const auto& item : module.named_buffers()) lines.push_back(describe("buffer", item.key(), item.value()));
  return lines;
}

std::string describe_difference(const std::vector<std::vector<std::string>>& signatures) {
  std::size_t longest = 0;
  for (const auto& signature : signatures) longest = std::max(longest, signature.size());
  for (std::size_t index = 0; index < longest; ++index) {
    const auto expected = line_or_nothing(signatures[0], index);
    for (std::size_t rank = 1; rank < signatures.size(); ++rank) {
      const auto found = line_or_nothing(signatures[rank], index);
      if (found == expected) continue;
      std::vector<std::size_t> ranks;
      for (std::size_t other = rank; other < signatures.size(); ++other) {
        if (line_or_nothing(signatures[other], index) == found) ranks.push_back(other);
      }
      return text(
          "The model differs between ranks: rank 0 has ", expected, " where ",
          ranks.size() == 1 ? text("rank ", ranks.front(), " has ") : text("ranks ", join(ranks, ", "), " have "),
          found, ". Build the same model on every rank.");
    }
  }
  return {};
}

}  // namespace detail

void require_same_model(const torch::nn::Module& module, Communicator& communicator) {
  const auto mine = join(detail::model_signature(module), "\n");
  // Thousands of ranks with thousands of tensors each agree by a digest; only a difference makes them show everything.
  const auto digests = communicator.all_gather_bytes(std::to_string(std::hash<std::string>{}(mine)));
  const auto differs = [&](const std::string& digest) { return digest != digests.front(); };
  if (std::none_of(digests.begin(), digests.end(), differs)) return;
  std::vector<std::vector<std::string>> signatures;
  for (const auto& signature : communicator.all_gather_bytes(mine)) signatures.push_back(lines_of(signature));
  throw UsageError(detail::describe_difference(signatures), ErrorScope::all_ranks);
}

}  // namespace libtrain
