#include <libtrain/comm/detail/staged/staging_buffer.hpp>

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include <c10/core/InferenceMode.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/detail/staged/host_registration.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kMaxCopyTime{1000};

// Drivers lock whole pages, and each page only once: the buffer does not share its pages.
at::Tensor allocate_pages(Communicator& host, std::int64_t elements, at::ScalarType type) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(type));
  const auto page = static_cast<std::int64_t>(sysconf(_SC_PAGESIZE)) / size;
  const auto whole = (elements / page + 1) * page;
  const c10::InferenceMode off{false};  // calls outside of it use the buffer, too
  const auto memory = host.allocate(whole + page, type);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.const_data_ptr());
  const auto past_page = static_cast<std::int64_t>(address / static_cast<std::uintptr_t>(size)) % page;
  return memory.narrow(0, (page - past_page) % page, whole);
}

}  // namespace

StagingBuffer::StagingBuffer(Communicator& host, const at::Device& device, std::int64_t elements, at::ScalarType type)
    : memory_(allocate_pages(host, elements, type)),
      registration_(register_host_memory(memory_.mutable_data_ptr(), memory_.nbytes(), device)) {}

StagingBuffer::~StagingBuffer() {
  try {
    const auto deadline = Deadline::after(kMaxCopyTime);
    while (!is_free() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (is_free()) return;
    // Leaked: the copy would overwrite other data in this memory.
    static_cast<void>(new std::pair{std::move(memory_), std::move(registration_)});
  } catch (...) {
    // The device has failed or the CUDA runtime has been unloaded: no copy is running.
  }
}

bool StagingBuffer::is_free() {
  if (last_copy_ && last_copy_->is_passed()) last_copy_.reset();
  return !last_copy_;
}

}  // namespace libtrain::detail
