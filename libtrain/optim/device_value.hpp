#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace libtrain::optim {

/// A number that may still be in the memory of a device, where operators can use it while the host does not know it.
///
///     const auto norm = optim::clip_gradients(model->parameters());   // on a GPU: nothing waits
///     if (step % 100 == 0) log(double{norm});                         // waits here
///
/// A conversion reads the device's memory each time, since the replay of a CUDA graph may have changed it. Any thread.
class DeviceValue {
 public:
  /// A number that the host knows.
  DeviceValue(double value) : value_(value) {}

  /// A tensor of one element and of a floating dtype.
  explicit DeviceValue(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  /// The number. If it is on a device, it waits for the calling thread's current stream of that device.
  operator double() const;

  bool is_on_device() const { return tensor_.defined() && !tensor_.is_cpu(); }

  /// The number as a tensor without dimensions, without waiting: float64, on the device or, if the host knows it, on
  /// the CPU.
  at::Tensor tensor() const;

 private:
  at::Tensor tensor_;
  double value_ = 0;
};

/// Whether gradients are finite, which only their device may know as yet. Any thread.
class FiniteCheck {
 public:
  /// An answer that the host knows.
  FiniteCheck(bool finite) : finite_(finite) {}

  /// A tensor of one element, float32, on the device of the gradients: 0 if they are finite, otherwise 1.
  explicit FiniteCheck(at::Tensor found_inf) : found_inf_(std::move(found_inf)) {}

  /// The answer. If only a device knows it, it waits for the calling thread's current stream of that device, each time.
  operator bool() const;

  bool is_on_device() const { return found_inf_.defined() && !found_inf_.is_cpu(); }

  /// As DeviceOptimizer::step_unless takes it, without waiting: the tensor that was given, or one on the CPU.
  at::Tensor found_inf() const;

 private:
  at::Tensor found_inf_;
  bool finite_ = true;
};

}  // namespace libtrain::optim
