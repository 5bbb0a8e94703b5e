#include <libtrain/sync/replica_check.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/sync/model_signature.hpp>

namespace libtrain {

namespace {

using Digest = std::uint64_t;

// Faster than combine_keys(), and like it a bijection of `state` for a given word and of `word` for a given state:
// later words cannot cancel a difference. The product carries it to higher bits, the shift to lower ones.
Digest absorb(Digest state, std::uint64_t word) {
  state = (state ^ word) * detail::kGoldenRatioBits;
  return state ^ (state >> 29);
}

// Four states, since each waits for its own last product only: a single state would be several times slower.
using Words = std::array<std::uint64_t, 4>;

void absorb_all(Words& states, const Words& words) {
  for (std::size_t i = 0; i < states.size(); ++i) states[i] = absorb(states[i], words[i]);
}

Digest digest_of_bytes(const char* bytes, std::size_t count) {
  Words states{1, 2, 3, 4};
  Words words{};
  std::size_t offset = 0;
  for (; count - offset >= sizeof(Words); offset += sizeof(Words)) {
    std::memcpy(words.data(), bytes + offset, sizeof(Words));
    absorb_all(states, words);
  }
  // The count distinguishes zeros at the end from padding.
  words = {};
  if (count > offset) std::memcpy(words.data(), bytes + offset, count - offset);
  absorb_all(states, words);
  Digest result = count;
  for (const auto state : states) result = absorb(result, state);
  return result;
}

struct NamedTensor {
  std::string kind = {};
  std::string name = {};
  at::Tensor tensor = {};
};

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module, const ReplicaCheckOptions& options) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.push_back({"parameter", item.key(), item.value()});
  if (!options.buffers) return tensors;
  for (const auto& item : module.named_buffers()) tensors.push_back({"buffer", item.key(), item.value()});
  return tensors;
}

std::vector<Digest> digests_of(const std::vector<NamedTensor>& tensors) {
  std::vector<Digest> digests;
  for (const auto& [kind, name, tensor] : tensors) {
    if (tensor.layout() != at::kStrided) {
      throw UsageError(text("The ", kind, " '", name,
                            "' is sparse, and only dense tensors can be compared between ranks. Check a module without "
                            "it."));
    }
    digests.push_back(detail::digest_of(tensor));
  }
  return digests;
}

std::string_view bytes_of(const std::vector<Digest>& digests) {
  return {reinterpret_cast<const char*>(digests.data()), digests.size() * sizeof(Digest)};
}

// The most frequent value; the first one of several.
std::string_view most_frequent(const std::vector<std::string_view>& values) {
  std::map<std::string_view, std::ptrdiff_t> counts;
  for (const auto value : values) ++counts[value];
  return *std::max_element(values.begin(), values.end(),
                           [&](const auto a, const auto b) { return counts.at(a) < counts.at(b); });
}

// Element r of `digests` has those of all tensors on rank r.
std::string describe_divergence(const std::vector<NamedTensor>& tensors, const std::vector<std::string>& digests,
                                const std::string& when, const std::string& advice) {
  std::string first;
  std::size_t different = 0;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    std::vector<std::string_view> values;
    for (const auto& digest : digests) {
      values.push_back(std::string_view{digest}.substr(index * sizeof(Digest), sizeof(Digest)));
    }
    const auto usual = most_frequent(values);
    std::vector<int> usual_ranks;
    std::vector<int> other_ranks;
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      (values[rank] == usual ? usual_ranks : other_ranks).push_back(static_cast<int>(rank));
    }
    if (other_ranks.empty()) continue;
    if (different++ > 0) continue;
    const auto& [kind, name, tensor] = tensors[index];
    first = text(kind, " '", name, "' of shape ", tensor.sizes(), " and dtype ", tensor.scalar_type(),
                 " has different values on ", detail::ranks_in_words(other_ranks), " than on ",
                 detail::ranks_in_words(usual_ranks));
  }
  return text("The replicas have diverged", when, ": ", first, " (the first of ", different, " that differ, of ",
              tensors.size(),
              " tensors). Look for code that changes weights on some ranks only and for optimizers with ",
              "different options; if the same rank is named every time, check its memory.", advice);
}

void check(const torch::nn::Module& module, Communicator& communicator, const std::vector<NamedTensor>& tensors,
           const std::string& when, const std::string& advice = {}) {
  if (communicator.world_size() == 1) return;
  const CallPurpose purpose{communicator, "check_replicas()"};
  const auto digests = digests_of(tensors);
  const auto bytes = bytes_of(digests);
  const auto combined = std::to_string(digest_of_bytes(bytes.data(), bytes.size()));
  if (detail::all_equal(communicator.all_gather_bytes(combined))) return;
  require_same_model(module, communicator);
  throw UsageError(describe_divergence(tensors, communicator.all_gather_bytes(std::string{bytes}), when, advice),
                   ErrorScope::all_ranks);
}

}  // namespace

namespace detail {

void check_trained_replicas(const torch::nn::Module& module, Communicator& communicator, const std::string& when,
                            const std::string& advice) {
  auto tensors = tensors_of(module, {});
  std::erase_if(tensors, [](const NamedTensor& named) { return !named.tensor.requires_grad(); });
  check(module, communicator, tensors, when, advice);
}

std::uint64_t digest_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto dense = tensor.cpu().contiguous();
  return digest_of_bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
}

}  // namespace detail

void check_replicas(const torch::nn::Module& module, Communicator& communicator, const ReplicaCheckOptions& options) {
  check(module, communicator, tensors_of(module, options), "");
}

ReplicaCheck::ReplicaCheck(const torch::nn::Module& module, Communicator& communicator, std::int64_t every,
                           ReplicaCheckOptions options)
    : module_(module), communicator_(communicator), every_(every), options_(options) {
  if (every < 0) {
    throw UsageError(text("ReplicaCheck cannot check every ", every, " steps. Give 1 or more, or 0 for never."));
  }
}

void ReplicaCheck::after_step() {
  ++steps_;
  if (every_ > 0 && steps_ % every_ == 0)
    check(module_, communicator_, tensors_of(module_, options_), text(" after step ", steps_));
}

}  // namespace libtrain
