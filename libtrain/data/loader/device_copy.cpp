#include <libtrain/data/loader/device_copy.hpp>

#include <algorithm>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

c10::Device require_gpu(c10::Device device) {
  if (device.is_cpu() || !device.has_index()) {
    throw UsageError(text("Batches are copied to a GPU, but the device is '", device.str(),
                          "'. Give a GPU with its index, such as cuda:0."));
  }
  return device;
}

// Another one than that of the thread: LibTorch's pool begins anew after its last stream.
c10::Stream other_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const auto stream = guard.getStreamFromGlobalPool(device);
  return stream == guard.getStream(device) ? guard.getStreamFromGlobalPool(device) : stream;
}

}  // namespace

DeviceCopy::DeviceCopy(c10::Device device) : device_(require_gpu(device)), stream_(other_stream(device_)) {}

std::unique_ptr<c10::Event> DeviceCopy::start(const std::vector<at::Tensor*>& tensors,
                                              const std::function<void()>& complete) const {
  // What is on the GPU already has been made in this thread's stream.
  const auto is_there = [](const at::Tensor* tensor) { return tensor->defined() && !tensor->is_cpu(); };
  if (std::ranges::any_of(tensors, is_there)) {
    c10::Event made(device_.type());
    made.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    made.block(stream_);
  }
  const c10::StreamGuard guard(stream_);
  for (at::Tensor* tensor : tensors) {
    if (tensor->defined() && tensor->is_cpu()) *tensor = tensor->pin_memory().to(device_, /*non_blocking=*/true);
  }
  complete();
  auto done = std::make_unique<c10::Event>(device_.type());
  done->record(stream_);
  return done;
}

void DeviceCopy::finish(std::unique_ptr<c10::Event> done, const std::vector<at::Tensor*>& tensors) const {
  const c10::DeviceGuard guard(device_);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  done->block(stream);
  // The allocator returns memory to the stream on which it was allocated: tell it that this stream uses it as well.
  for (at::Tensor* tensor : tensors) {
    if (tensor->defined()) tensor->record_stream(stream);
  }
}

}  // namespace libtrain::data::detail
