#include <libtrain/sync/wire/detail/plain.hpp>

namespace libtrain::detail {

std::unique_ptr<Reduction> PlainWireFormat::start(const BucketView& bucket, Communicator& communicator) {
  return average_in_place(bucket.flat, communicator);
}

std::shared_ptr<WireFormat> format_or_plain(const std::shared_ptr<WireFormat>& format,
                                            const Communicator& communicator) {
  if (format || communicator.world_size() == 1) return format;
  return std::make_shared<PlainWireFormat>();
}

}  // namespace libtrain::detail
