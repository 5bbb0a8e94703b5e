// The fake GPU for LibTorch: its guard (devices, streams, events), hooks, generators, and their registration.

#include <array>
#include <memory>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fake_gpu/memory.hpp>
#include <tests/support/fake_gpu/operators.hpp>
#include <tests/support/fake_gpu/streams.hpp>

namespace libtrain::test {

namespace fake {

namespace {

at::Device device_of(c10::DeviceIndex index) {
  return {at::kPrivateUse1, index};
}

// An event: the point in a stream where it was last recorded.
struct Event {
  std::shared_ptr<Mark> mark;
  c10::DeviceIndex device = 0;
};

const Event& event_at(void* event) {
  TORCH_CHECK(event != nullptr, "The event has not been recorded.");
  return *static_cast<Event*>(event);
}

class FakeGpuGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return kFakeGpus; }

  c10::Device getDevice() const override { return device_of(current_device()); }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto former = getDevice();
    if (device.has_index()) setDevice(device);
    return former;
  }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)).handle(); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device_of(index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override {
    return stream_from_pool(index_of(device), is_high_priority ? Pool::high_priority : Pool::normal).handle();
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return new_stream(index_of(device)).handle();
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto former = getStream(stream.device());
    set_current_stream(stream);
    return former;
  }
  bool queryStream(const c10::Stream& stream) const override { return find_stream(stream).is_idle(); }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize_stream(stream); }
  void synchronizeDevice(c10::DeviceIndex device) const override { synchronize_device(device); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = {find_stream(stream).mark(), stream.device_index()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) find_stream(stream).wait_for(event_at(event).mark);
  }
  bool queryEvent(void* event) const override { return event == nullptr || event_at(event).mark->is_passed(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize_mark(*event_at(event).mark, event_at(event).device);
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex /*device*/) const override {
    const auto elapsed = event_at(second).mark->time() - event_at(first).mark->time();
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    record_use(memory, find_stream(stream));
  }

 private:
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current_device();
  }
};

class FakeGpuGenerator final : public at::CPUGeneratorImpl {
 public:
  explicit FakeGpuGenerator(c10::DeviceIndex device) {
    device_ = device_of(device);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

class FakeGpuHooks final : public at::PrivateUse1HooksInterface {
 public:
  FakeGpuHooks() {
    for (c10::DeviceIndex index = 0; index < kFakeGpus; ++index) {
      generators_.push_back(at::make_generator<FakeGpuGenerator>(index));
    }
  }

  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kFakeGpus; }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto former = current_device();
    set_current_device(device);
    return former;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return generators_.at(static_cast<std::size_t>(device < 0 ? current_device() : device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<FakeGpuGenerator>(device < 0 ? current_device() : device);
  }

  at::Device getDeviceFromPtr(void* address) const override { return device_of(device_of_address(address)); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(storage, bytes);
  }

 private:
  std::vector<at::Generator> generators_;
};

bool register_fake_gpu() {
  c10::register_privateuse1_backend("fakegpu");
  c10::impl::registerDeviceGuard(at::kPrivateUse1, new FakeGpuGuard);
  at::RegisterPrivateUse1HooksInterface(new FakeGpuHooks);
  c10::SetAllocator(at::kPrivateUse1, &device_allocator());
  at::setHostAllocator(at::kPrivateUse1, &pinned_allocator());
  register_operators();
  return true;
}

// Before main(), as LibTorch's own devices are: the autograd engine counts devices when it is first used, and a seed
// reaches the devices that exist.
const bool registered = register_fake_gpu();

}  // namespace

}  // namespace fake

at::Device fake_gpu(int index) {
  TORCH_CHECK(index >= 0 && index < kFakeGpus, "There is no fake GPU ", index, "; there are ", kFakeGpus, ".");
  return {at::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace libtrain::test
