#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include <tests/support/fake_gpu/streams.hpp>

namespace libtrain::test::fake {

/// Memory of all fake GPUs is one file in memory that is mapped twice: tensors have addresses in a mapping without
/// access rights, queued work uses the other one. Null for null.
void* kernel_address(const void* device_address);
c10::DeviceIndex device_of_address(const void* device_address);

/// Like the caching allocator for CUDA: memory is allocated for the current stream, whose next allocation may get it as
/// soon as it is freed; use by other streams must have been recorded. Aligned to 512 bytes. New and freed memory is
/// filled with bytes 0xff (NaN in all floating types), in the order of the stream that it was allocated for.
c10::DeviceAllocator& device_allocator();

void record_use(const c10::DataPtr& memory, FakeStream& stream);

/// Of a fake GPU; the contents are kept.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

/// Host memory that streams may access. Freed memory is used again when the work that uses it has run.
at::HostAllocator& pinned_allocator();

bool is_pinned(const void* address);
void record_pinned_use(const void* address, FakeStream& stream);

/// A FakeGraph is destroyed: gives its memory back once `last_replay` (may be null) has been passed.
void release_memory_of(const Recording* recording, const std::shared_ptr<Mark>& last_replay);

}  // namespace libtrain::test::fake
