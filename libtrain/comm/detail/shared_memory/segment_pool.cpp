#include <libtrain/comm/detail/shared_memory/segment_pool.hpp>

#include <algorithm>
#include <functional>
#include <utility>

namespace libtrain::detail {

std::shared_ptr<void> SegmentPool::allocate(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  const auto number = ++created_;
  lock.unlock();  // creating a segment takes long
  Segment segment{bytes, number};
  auto* data = segment.data();
  lock.lock();
  buffers_.emplace(data, std::move(segment));
  lock.unlock();
  return {data, [self = shared_from_this()](void* memory) { self->free(static_cast<std::byte*>(memory)); }};
}

SegmentPool::Buffers::const_iterator SegmentPool::find(const void* data) const {
  const auto* address = static_cast<const std::byte*>(data);
  const auto next = buffers_.upper_bound(address);
  if (next == buffers_.begin()) return buffers_.end();
  const auto buffer = std::prev(next);
  return std::less<>{}(address, buffer->first + buffer->second.name().bytes) ? buffer : buffers_.end();
}

SegmentPool::Locations SegmentPool::publish(const void* input, const void* output) {
  const std::lock_guard lock(mutex_);
  published_ = {};
  const auto locate = [this](const void* data, const std::byte*& published) -> Location {
    const auto buffer = find(data);
    if (buffer == buffers_.end()) return {};
    published = buffer->first;
    const auto offset = static_cast<const std::byte*>(data) - buffer->first;
    return {.segment = buffer->second.name(),
            .offset = static_cast<std::uint64_t>(offset),
            .owned_segments = buffers_.size()};
  };
  const auto input_location = locate(input, published_[0]);
  const auto output_location = output == input ? input_location : locate(output, published_[1]);
  return {.input = input_location, .output = output_location};
}

void SegmentPool::unpublish() {
  const std::lock_guard lock(mutex_);
  published_ = {};
}

void SegmentPool::free(const std::byte* data) noexcept {
  Buffers::node_type buffer;  // unmapped without the lock
  {
    const std::lock_guard lock(mutex_);
    buffer = buffers_.extract(data);
    if (std::ranges::find(published_, data) != published_.end()) return;
  }
  buffer.mapped().discard();
}

}  // namespace libtrain::detail
