#include <libtrain/train/detail/peak_memory.hpp>

#include <algorithm>
#include <limits>
#include <string>

#include <c10/core/CachingDeviceAllocator.h>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

std::int64_t largest_of_ranks(std::int64_t mine, Communicator& communicator) {
  // As text, because some communicators accept only tensors on a GPU.
  std::int64_t peak = 0;
  for (const auto& bytes : communicator.all_gather_bytes(std::to_string(mine))) {
    const auto of_rank = parse_integer(bytes, 0, std::numeric_limits<std::int64_t>::max());
    if (!of_rank)
      throw CommunicationError(
          text("A rank sent '", bytes,
               "' as its peak memory, which is not a number. Run the same build of libtrain on every rank."));
    peak = std::max<std::int64_t>(peak, *of_rank);
  }
  return peak;
}

}  // namespace

std::int64_t peak_rss_of_ranks(Communicator& communicator) {
  return largest_of_ranks(peak_rss_bytes(), communicator);
}

std::int64_t peak_gpu_memory_of_ranks(const c10::Device& device, Communicator& communicator) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto statistics = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return largest_of_ranks(statistics.reserved_bytes[kAll].peak, communicator);
}

std::int64_t memory_in_use(const c10::Device& device) {
  if (device.is_cpu()) return rss_bytes();
  if (!device.is_cuda()) return 0;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).reserved_bytes[kAll].current;
}

std::int64_t memory_limit(const c10::Device& device) {
  if (device.is_cpu()) return memory_bytes();
  if (!device.is_cuda()) return 0;
  return static_cast<std::int64_t>(c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).second);
}

}  // namespace libtrain::detail
