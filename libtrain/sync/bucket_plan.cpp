#include <libtrain/sync/bucket_plan.hpp>

#include <algorithm>
#include <map>

namespace libtrain {

std::vector<Bucket> plan_buckets(const std::vector<GradientSpec>& gradients, const BucketLimits& limits) {
  std::vector<Bucket> full;
  std::map<DataType, Bucket> open;
  for (std::size_t index = 0; index < gradients.size(); ++index) {
    const auto& gradient = gradients[index];
    const auto bytes = gradient.elements * size_of(gradient.type);
    if (bytes >= limits.alone_bytes) {
      full.push_back({.type = gradient.type, .bytes = bytes, .members = {index}});
      continue;
    }
    auto& bucket = open[gradient.type];
    const auto limit = full.empty() ? limits.first_bucket_bytes : limits.bucket_bytes;
    if (!bucket.members.empty() && bucket.bytes + bytes > limit) {
      full.push_back(std::move(bucket));
      bucket = {};
    }
    bucket.type = gradient.type;
    bucket.bytes += bytes;
    bucket.members.push_back(index);
  }
  for (auto& [type, bucket] : open) full.push_back(std::move(bucket));
  std::sort(full.begin(), full.end(),
            [](const Bucket& left, const Bucket& right) { return left.members.back() < right.members.back(); });
  return full;
}

}  // namespace libtrain
