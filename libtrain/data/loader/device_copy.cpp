#include <libtrain/data/loader/device_copy.hpp>

#include <utility>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

c10::Device require_gpu(c10::Device device) {
  if (device.is_cpu() || !device.has_index()) {
    throw UsageError(text("Batches are copied to a GPU, but the device is '", device.str(), "': name one, as cuda:0."));
  }
  return device;
}

}  // namespace

DeviceCopy::DeviceCopy(c10::Device device)
    : device_(require_gpu(device)),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

std::unique_ptr<DeviceCopy::Transfer> DeviceCopy::start(const Batch& host) const {
  const c10::StreamGuard guard(stream_);
  auto transfer = std::unique_ptr<Transfer>(new Transfer{.done = c10::Event(device_.type())});
  transfer->batch = {host.images.to(device_, /*non_blocking=*/true), host.labels.to(device_, /*non_blocking=*/true)};
  transfer->done.record(stream_);
  return transfer;
}

Batch DeviceCopy::finish(std::unique_ptr<Transfer> transfer) const {
  const c10::DeviceGuard guard(device_);
  const c10::impl::VirtualGuardImpl implementation(device_.type());
  const c10::Stream stream = implementation.getStream(device_);
  transfer->done.block(stream);
  // The allocator gives memory back to the stream on which it was taken: it must know of this one, too.
  for (const auto& tensor : {transfer->batch.images, transfer->batch.labels}) tensor.record_stream(stream);
  Batch batch = std::move(transfer->batch);
  transfer.reset();  // whose event belongs to the device
  return batch;
}

}  // namespace libtrain::data::detail
