#include <libtrain/train/autocast.hpp>

#include <ATen/autocast_mode.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

c10::DeviceType require_supported(c10::DeviceType device, at::ScalarType type) {
  if (!at::autocast::is_autocast_available(device)) {
    throw UsageError(text("LibTorch has no autocast for device type '",
                          c10::DeviceTypeName(device, /*lower_case=*/true), "'. Use float32 there."));
  }
  if (type != at::kBFloat16 && type != at::kHalf && type != at::kFloat) {
    throw UsageError(
        text("AutocastOptions::type is ", type, ", expected bfloat16 or float16, or float32 to switch autocast off."));
  }
  return device;
}

}  // namespace

Autocast::Autocast(c10::Device device, const AutocastOptions& options)
    : device_(require_supported(device.type(), options.type)),
      former_type_(at::autocast::get_autocast_dtype(device_)),
      was_enabled_(at::autocast::is_autocast_enabled(device_)),
      had_cache_(at::autocast::is_autocast_cache_enabled()),
      changes_type_(options.type != at::kFloat && options.type != former_type_) {
  at::autocast::increment_nesting();
  if (changes_type_) {
    at::autocast::clear_cache();  // which finds a cast by its weight alone, of whatever type it is
    at::autocast::set_autocast_dtype(device_, options.type);
  }
  at::autocast::set_autocast_enabled(device_, options.type != at::kFloat);
  at::autocast::set_autocast_cache_enabled(options.cache_weights);
}

Autocast::~Autocast() {
  const bool is_outermost = at::autocast::decrement_nesting() == 0;
  if (is_outermost || changes_type_) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, former_type_);
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_cache_enabled(had_cache_);
}

}  // namespace libtrain
