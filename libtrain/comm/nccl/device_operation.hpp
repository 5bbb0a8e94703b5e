#pragma once

#include <cstdint>
#include <string>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/call.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// A collective that a device runs on its own once it has been called.
class DeviceOperation : public Pending {
 public:
  DeviceOperation(const Call& call, std::uint64_t sequence, const Deadline& deadline)
      : call_(call), sequence_(sequence), deadline_(deadline) {}

  const Deadline& deadline() const { return deadline_; }

  /// "all_reduce of 10 float32 (sum) (collective number 7)".
  std::string name() const { return text(to_string(call_), " (collective number ", sequence_, ")"); }

  /// Whether the device is through with it. Throws where the device has failed.
  virtual bool has_ended() = 0;

  /// Lets go of the tensors. Called once, by the watchdog, after the end.
  virtual void release() noexcept = 0;

 private:
  Call call_;
  std::uint64_t sequence_;
  Deadline deadline_;
};

}  // namespace libtrain::detail
