#include <libtrain/sync/wire/detail/plain.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

std::unique_ptr<Reduction> PlainWireFormat::start(const BucketView& bucket, Communicator& communicator) {
  return average_in_place(bucket.flat, communicator);
}

std::shared_ptr<WireFormat> format_or_plain(const std::shared_ptr<WireFormat>& format,
                                            const Communicator& communicator) {
  if (!format && communicator.world_size() == 1) return format;
  if (!communicator.supports(at::kCPU)) {
    throw UsageError(text("This version synchronises gradients in host memory, which backend ", communicator.backend(),
                          " does not support. Use --dist-backend auto or gloo."));
  }
  return format ? format : std::make_shared<PlainWireFormat>();
}

}  // namespace libtrain::detail
