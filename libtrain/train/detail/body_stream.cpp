#include <libtrain/train/detail/body_stream.hpp>

#include <exception>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <libtrain/base/log.hpp>

namespace libtrain::detail {

BodyStream::BodyStream(const c10::Device& device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.setDevice(device);
  stream_ = guard.getStreamFromGlobalPool(device);
  previous_ = guard.exchangeStream(*stream_);
}

BodyStream::~BodyStream() {
  if (!previous_) return;
  try {
    c10::impl::VirtualGuardImpl(previous_->device_type()).exchangeStream(*previous_);
  } catch (const std::exception& error) {
    log_debug(error.what());  // a lost GPU, which has been reported
  }
}

void BodyStream::synchronize() const {
  if (stream_) c10::impl::VirtualGuardImpl(stream_->device_type()).synchronizeStream(*stream_);
}

}  // namespace libtrain::detail
