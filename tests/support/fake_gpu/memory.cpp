#include <tests/support/fake_gpu/memory.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <tests/support/fake_gpu/fake_gpu.hpp>

namespace libtrain::test::fake {

namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kDeviceBytes = std::size_t{4} << 30;  // of address space; memory is used once it is touched
constexpr int kPoison = 0xff;

struct Mappings {
  char* tensors = nullptr;
  char* kernels = nullptr;

  Mappings() {
    constexpr auto bytes = kDeviceBytes * kFakeGpus;
    const int file = memfd_create("fake_gpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) fail("memfd_create");
    tensors = map(file, bytes, PROT_NONE);
    kernels = map(file, bytes, PROT_READ | PROT_WRITE);
    close(file);
  }

  static char* map(int file, std::size_t bytes, int protection) {
    void* address = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (address == MAP_FAILED) fail("mmap");
    return static_cast<char*>(address);
  }

  [[noreturn]] static void fail(const char* call) { throw std::system_error(errno, std::system_category(), call); }
};

const Mappings& mappings() {
  static const Mappings instance;
  return instance;
}

struct Block {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  FakeStream* stream = nullptr;          // that it was allocated for
  std::set<FakeStream*> users = {};      // other streams
  const Recording* recording = nullptr;  // that it is reserved for
};

// A freed block that other streams may still use.
struct PendingBlock {
  Block* block = nullptr;
  std::vector<std::shared_ptr<Mark>> marks = {};
};

class FakeDeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto device = current_device();
    const at::Device place(at::kPrivateUse1, device);
    if (bytes == 0) return {nullptr, place};
    auto* block = take((bytes + kAlignment - 1) / kAlignment * kAlignment, current_stream(device));
    return {mappings().tensors + block->offset, block, &free_context, place};
  }

  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*count*/) const override {
    TORCH_CHECK(false, "The fake GPU's allocator does not copy.");
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    record_use(memory, find_stream(stream));
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    return devices_[static_cast<std::size_t>(device)].stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    reset(device, &c10::CachingAllocator::Stat::reset_accumulated);
  }
  void resetPeakStats(c10::DeviceIndex device) override { reset(device, &c10::CachingAllocator::Stat::reset_peak); }

  void record_use(const c10::DataPtr& memory, FakeStream& stream) {
    auto* block = memory.cast_context<Block>(&free_context);
    TORCH_CHECK(block != nullptr || memory.get() == nullptr,
                "This memory does not come from the fake GPU's allocator.");
    const std::lock_guard lock(mutex_);
    if (block != nullptr && block->stream != &stream) block->users.insert(&stream);
  }

  void release(const Recording* recording, const std::shared_ptr<Mark>& last_replay) {
    const std::lock_guard lock(mutex_);
    for (auto* block : used_) {
      if (block->recording == recording) block->recording = nullptr;
    }
    for (auto& pending : pending_) {
      if (pending.block->recording != recording) continue;
      pending.block->recording = nullptr;
      if (last_replay) pending.marks.push_back(last_replay);
    }
    for (auto cache = caches_.begin(); cache != caches_.end();) {
      if (cache->first.second != recording) {
        ++cache;
        continue;
      }
      for (const auto& [bytes, block] : cache->second) {
        block->recording = nullptr;
        pending_.push_back({block, {}});
        if (last_replay) pending_.back().marks.push_back(last_replay);
      }
      cache = caches_.erase(cache);
    }
  }

 private:
  using Cache = std::multimap<std::size_t, Block*>;  // free blocks by size

  struct DeviceMemory {
    std::map<std::size_t, std::size_t> extents = {};  // unused address space: offset and bytes
    c10::CachingDeviceAllocator::DeviceStats stats = {};
    bool initialised = false;
  };

  static void free_context(void* context);

  Block* take(std::size_t bytes, FakeStream& stream) {
    const auto recording = stream.recording();
    std::unique_lock lock(mutex_);
    settle_pending();
    auto* block = take_cached(bytes, stream, recording.get());
    if (block == nullptr) block = take_new(bytes, stream, recording.get());
    if (block == nullptr) {
      lock.unlock();
      wait_for_device(stream.handle().device_index());
      lock.lock();
      settle_pending();
      return_cached(stream.handle().device_index());
      block = take_new(bytes, stream, recording.get());
    }
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "The fake GPU is out of memory: it has ", kDeviceBytes,
                     " bytes, and ", bytes, " more are wanted.");
    used_.insert(block);
    memory_of(stream).stats.allocated_bytes[0].increase(block->bytes);
    return block;
  }

  DeviceMemory& memory_of(const FakeStream& stream) {
    const auto index = static_cast<std::size_t>(stream.handle().device_index());
    auto& memory = devices_[index];
    if (!memory.initialised) memory.extents[index * kDeviceBytes] = kDeviceBytes;
    memory.initialised = true;
    return memory;
  }

  Block* take_cached(std::size_t bytes, FakeStream& stream, const Recording* recording) {
    auto& cache = caches_[{&stream, recording}];
    const auto smallest = cache.lower_bound(bytes);
    if (smallest == cache.end() || smallest->first > 2 * bytes) return nullptr;
    const auto last_freed = std::prev(cache.upper_bound(smallest->first));
    auto* block = last_freed->second;
    cache.erase(last_freed);
    return block;
  }

  Block* take_new(std::size_t bytes, FakeStream& stream, const Recording* recording) {
    auto& extents = memory_of(stream).extents;
    const auto fits = [bytes](const auto& extent) { return extent.second >= bytes; };
    const auto found = std::find_if(extents.begin(), extents.end(), fits);
    if (found == extents.end()) return nullptr;
    const auto [offset, available] = *found;
    extents.erase(found);
    if (available > bytes) extents[offset + bytes] = available - bytes;
    auto* block = new Block{.offset = offset, .bytes = bytes, .stream = &stream, .recording = recording};
    poison(*block);
    return block;
  }

  static void wait_for_device(c10::DeviceIndex device) { synchronize_device(device); }

  void return_cached(c10::DeviceIndex device) {
    for (auto& [key, cache] : caches_) {
      if (key.second != nullptr || key.first->handle().device_index() != device) continue;
      auto& extents = memory_of(*key.first).extents;
      for (const auto& [bytes, block] : cache) {
        extents[block->offset] = bytes;
        delete block;
      }
      cache.clear();
      for (auto extent = extents.begin(); extent != extents.end();) {
        const auto next = std::next(extent);
        if (next == extents.end() || extent->first + extent->second != next->first) {
          extent = next;
          continue;
        }
        extent->second += next->second;
        extents.erase(next);
      }
    }
  }

  void give_back(Block* block) {
    const std::lock_guard lock(mutex_);
    used_.erase(block);
    memory_of(*block->stream).stats.allocated_bytes[0].decrease(block->bytes);
    if (block->users.empty()) return cache(block);
    pending_.push_back({block, {}});
    settle_pending();
  }

  // Blocks whose other streams have done what they had been given when the block was freed. Streams that are being
  // recorded cannot be asked yet, and memory of a graph stays as it is.
  void settle_pending() {
    for (auto& [block, marks] : pending_) {
      if (block->recording != nullptr) continue;
      for (auto user = block->users.begin(); user != block->users.end();) {
        if ((*user)->recording()) {
          ++user;
        } else {
          marks.push_back((*user)->mark());
          user = block->users.erase(user);
        }
      }
    }
    const auto is_settled = [](const PendingBlock& pending) {
      const auto passed = [](const auto& mark) { return mark->is_passed(); };
      return pending.block->recording == nullptr && pending.block->users.empty() &&
             std::all_of(pending.marks.begin(), pending.marks.end(), passed);
    };
    const auto settled = std::stable_partition(pending_.begin(), pending_.end(), std::not_fn(is_settled));
    for (auto pending = settled; pending != pending_.end(); ++pending) cache(pending->block);
    pending_.erase(settled, pending_.end());
  }

  void cache(Block* block) {
    poison(*block);
    caches_[{block->stream, block->recording}].emplace(block->bytes, block);
  }

  static void poison(const Block& block) {
    if (block.recording != nullptr || block.stream->recording()) return;
    auto* address = mappings().kernels + block.offset;
    block.stream->launch({.name = "poisoning memory",
                          .run = [address, bytes = block.bytes] { std::memset(address, kPoison, bytes); },
                          .internal = true});
  }

  void reset(c10::DeviceIndex device, void (c10::CachingAllocator::Stat::*reset)()) {
    const std::lock_guard lock(mutex_);
    (devices_[static_cast<std::size_t>(device)].stats.allocated_bytes[0].*reset)();
  }

  std::mutex mutex_;
  std::array<DeviceMemory, kFakeGpus> devices_;
  std::map<std::pair<FakeStream*, const Recording*>, Cache> caches_;
  std::vector<PendingBlock> pending_;
  std::set<Block*> used_;
};

FakeDeviceAllocator& fake_device_allocator() {
  static auto* instance = new FakeDeviceAllocator;  // memory may be freed while static objects are destroyed
  return *instance;
}

void FakeDeviceAllocator::free_context(void* context) {
  fake_device_allocator().give_back(static_cast<Block*>(context));
}

class FakePinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, at::kCPU};
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::lock_guard lock(mutex_);
    settle_pending();
    char* address = nullptr;
    if (const auto found = free_.find(bytes); found != free_.end()) {
      address = found->second;
      free_.erase(found);
    } else {
      address = static_cast<char*>(c10::GetCPUAllocator()->raw_allocate(bytes));
      std::memset(address, kPoison, bytes);
    }
    blocks_[address].bytes = bytes;
    return {address, address, &free_context, at::kCPU};
  }

  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }

  bool record_event(void* address, void* /*context*/, c10::Stream stream) override {
    return record_use(address, find_stream(stream));
  }

  bool contains(const void* address) {
    const std::lock_guard lock(mutex_);
    return find(address) != blocks_.end();
  }

  bool record_use(const void* address, FakeStream& stream) {
    const std::lock_guard lock(mutex_);
    const auto found = find(address);
    if (found == blocks_.end()) return false;
    if (!stream.recording()) found->second.marks.push_back(stream.mark());
    return true;
  }

  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  struct PinnedBlock {
    std::size_t bytes = 0;
    bool freed = false;
    std::vector<std::shared_ptr<Mark>> marks = {};
  };
  using Blocks = std::map<const char*, PinnedBlock>;

  static void free_context(void* context);

  Blocks::iterator find(const void* address) {
    auto next = blocks_.upper_bound(static_cast<const char*>(address));
    if (next == blocks_.begin()) return blocks_.end();
    --next;
    return static_cast<const char*>(address) < next->first + next->second.bytes ? next : blocks_.end();
  }

  void settle_pending() {
    const auto passed = [](const auto& mark) { return mark->is_passed(); };
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      const auto& marks = block->second.marks;
      if (!block->second.freed || !std::all_of(marks.begin(), marks.end(), passed)) {
        ++block;
        continue;
      }
      auto* address = const_cast<char*>(block->first);
      std::memset(address, kPoison, block->second.bytes);
      free_.emplace(block->second.bytes, address);
      block = blocks_.erase(block);
    }
  }

  std::mutex mutex_;
  Blocks blocks_;
  std::multimap<std::size_t, char*> free_;
};

FakePinnedAllocator& fake_pinned_allocator() {
  static auto* instance = new FakePinnedAllocator;
  return *instance;
}

void FakePinnedAllocator::free_context(void* context) {
  auto& allocator = fake_pinned_allocator();
  const std::lock_guard lock(allocator.mutex_);
  allocator.blocks_.at(static_cast<char*>(context)).freed = true;
  allocator.settle_pending();
}

}  // namespace

void* kernel_address(const void* device_address) {
  if (device_address == nullptr) return nullptr;
  const auto offset = static_cast<const char*>(device_address) - mappings().tensors;
  TORCH_CHECK(offset >= 0 && static_cast<std::size_t>(offset) <= kDeviceBytes * kFakeGpus,
              "A tensor of a fake GPU is not in its memory.");
  return mappings().kernels + offset;
}

c10::DeviceIndex device_of_address(const void* device_address) {
  const auto offset = static_cast<char*>(kernel_address(device_address)) - mappings().kernels;
  return static_cast<c10::DeviceIndex>(static_cast<std::size_t>(offset) / kDeviceBytes);
}

c10::DeviceAllocator& device_allocator() {
  return fake_device_allocator();
}

void record_use(const c10::DataPtr& memory, FakeStream& stream) {
  fake_device_allocator().record_use(memory, stream);
}

at::HostAllocator& pinned_allocator() {
  return fake_pinned_allocator();
}

bool is_pinned(const void* address) {
  return fake_pinned_allocator().contains(address);
}

void record_pinned_use(const void* address, FakeStream& stream) {
  fake_pinned_allocator().record_use(address, stream);
}

void release_memory_of(const Recording* recording, const std::shared_ptr<Mark>& last_replay) {
  fake_device_allocator().release(recording, last_replay);
}

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  auto memory = device_allocator().allocate(bytes);
  const auto kept = std::min(bytes, storage.nbytes());
  auto& stream = current_stream(storage.device().index());
  if (kept > 0) {
    count_operation();
    stream.launch({"resizing a tensor", [to = kernel_address(memory.get()), from = kernel_address(storage.data()),
                                         kept] { std::memcpy(to, from, kept); }});
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(memory));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

}  // namespace libtrain::test::fake
