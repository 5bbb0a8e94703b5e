#include <libtrain/sync/detail/gradient_buckets.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/ScalarType.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/device/stream_mark.hpp>

namespace libtrain::detail {

namespace {

// Gradients start at multiples of a cache line.
std::int64_t padded_elements(std::int64_t elements, at::ScalarType type) {
  constexpr std::int64_t kAlignmentBytes = 64;
  const auto step = kAlignmentBytes / static_cast<std::int64_t>(c10::elementSize(type));
  return (elements + step - 1) / step * step;
}

at::Tensor shape_of(const ModuleParameter& member) {
  const auto& parameter = member.tensor;
  const auto options = at::TensorOptions(at::kMeta).dtype(member.type);
  return parameter.is_non_overlapping_and_dense() ? at::empty_strided(parameter.sizes(), parameter.strides(), options)
                                                  : at::empty(parameter.sizes(), options);
}

at::Tensor part_of_bucket(const at::Tensor& flat, std::int64_t offset, const at::Tensor& shape) {
  auto part = at::empty({0}, flat.options());
  part.set_(flat.storage(), offset, shape.sizes(), shape.strides());
  return part;
}

// The stride of a dimension of size 1 does not matter.
bool has_layout_of(const at::Tensor& shape, const at::Tensor& gradient) {
  if (gradient.sizes() != shape.sizes()) return false;
  for (std::int64_t dimension = 0; dimension < shape.dim(); ++dimension) {
    if (shape.size(dimension) > 1 && shape.stride(dimension) != gradient.stride(dimension)) return false;
  }
  return true;
}

// As memory if possible: for small tensors that costs a tenth of an operator.
void copy_dense(const at::Tensor& source, const at::Tensor& target) {
  const bool as_memory = source.is_cpu() && target.is_cpu() && source.scalar_type() == target.scalar_type() &&
                         source.strides() == target.strides() && target.is_non_overlapping_and_dense() &&
                         !source.is_neg();
  if (as_memory) {
    if (source.nbytes() > 0) std::memcpy(target.mutable_data_ptr(), source.const_data_ptr(), source.nbytes());
    return;
  }
  const at::NoGradGuard no_grad;
  target.copy_(source);
}

void scale(const at::Tensor& gradients, double weight) {
  if (weight == 1) return;
  const at::NoGradGuard no_grad;
  if (weight == 0) {
    gradients.zero_();  // not a product, which would keep NaN
  } else {
    gradients.mul_(weight);
  }
}

// "bucket 2 of 5 ('fc.weight' to 'layer4.bn2.bias')"
std::string label_of(const BucketView& bucket, std::size_t buckets, const std::string& owner) {
  const auto& names = bucket.names;
  const auto range =
      names.size() == 1 ? text("'", names.front(), "'") : text("'", names.front(), "' to '", names.back(), "'");
  return text("bucket ", bucket.index, " of ", buckets, owner, " (", range, ")");
}

}  // namespace

GradientBucket::GradientBucket(std::size_t index, const std::vector<const ModuleParameter*>& members,
                               GradientMemory& memory, bool is_zero_copy) {
  const auto type = members.front()->type;
  view_.index = index;
  std::int64_t elements = 0;
  for (const auto* member : members) {
    view_.names.push_back(member->name);
    shapes_.push_back(shape_of(*member));
    elements += is_zero_copy ? member->tensor.numel() : padded_elements(member->tensor.numel(), type);
    statistics_.bytes += shapes_.back().nbytes();
  }
  memory_ = memory.make(elements, type, is_zero_copy);
  if (is_zero_copy) return;
  for (const auto& place : places()) {
    view_.gradients.push_back(part_of_bucket(view_.flat, place.storage_offset(), place));
  }
}

const std::vector<at::Tensor>& GradientBucket::places() {
  if (!places_.empty()) return places_;
  view_.flat = memory_->flat();
  std::int64_t offset = 0;
  for (const auto& shape : shapes_) {
    places_.push_back(part_of_bucket(view_.flat, offset, shape));
    offset += padded_elements(shape.numel(), shape.scalar_type());
  }
  return places_;
}

const at::Tensor& GradientBucket::place(std::size_t member) {
  return places()[member];
}

bool GradientBucket::holds(std::size_t member, const at::Tensor& gradient) const {
  return member < places_.size() && places_[member].is_same(gradient);
}

void GradientBucket::keep(std::size_t member, at::Tensor& gradient) {
  const auto& target = place(member);
  if (!target.is_cpu()) {
    kept_[member] = &gradient;
    note_stream();
    return;
  }
  copy_dense(gradient, target);
  gradient = target;
}

void GradientBucket::note_stream() {
  const auto device = view_.flat.device();
  if (device.is_cpu()) return;
  const auto stream = current_stream(device);
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
}

void GradientBucket::clear(std::size_t member) {
  if (place(member).is_cpu()) {
    place(member).zero_();
  } else {
    kept_[member] = nullptr;
  }
}

bool GradientBucket::gather() {
  if (kept_.empty() && streams_.empty()) return false;
  const at::NoGradGuard no_grad;
  wait_for_gradients();
  if (kept_.empty()) return false;
  std::vector<at::Tensor> sources;
  std::vector<at::Tensor> targets;
  std::vector<at::Tensor> cleared;
  for (const auto& [member, gradient] : kept_) {
    const auto& target = place(member);
    if (gradient == nullptr) {
      if (target.numel() > 0) cleared.push_back(target);
    } else if (gradient->defined() && !holds(member, *gradient)) {
      if (target.numel() > 0) {
        sources.push_back(gradient->resolve_neg());
        targets.push_back(target);
      }
      *gradient = target;
    }
  }
  if (!cleared.empty()) at::_foreach_zero_(cleared);
  if (!targets.empty()) at::_foreach_copy_(targets, sources);
  kept_.clear();
  return true;
}

// Parallel branches of a model may compute gradients of one bucket on several streams.
void GradientBucket::wait_for_gradients() const {
  const auto device = view_.flat.device();
  const auto here = current_stream(device);
  for (const auto& stream : streams_) {
    if (stream == here) continue;
    c10::Event computed(device.type());
    computed.record(stream);
    computed.block(here);
    for (const auto& [member, gradient] : kept_) {
      if (gradient != nullptr && gradient->defined()) gradient->record_stream(here);
    }
  }
}

bool GradientBucket::adopt(const at::Tensor& gradient, const at::Tensor& incoming) {
  if (shapes_.size() != 1 || is_started() || !gradient.is_cpu() || gradient.is_neg()) return false;
  if (!has_layout_of(shapes_.front(), gradient) || !memory_->adopt(gradient, incoming)) return false;
  view_.flat = memory_->flat();
  places_.assign(1, gradient);
  return true;
}

void GradientBucket::start(WireFormat& format, Communicator& communicator, double weight) {
  places();
  scale(view_.flat, weight);
  const CallPurpose purpose{communicator, label_};
  reduction_ = format.start(view_, communicator);
}

bool GradientBucket::advance(Communicator& communicator) {
  const CallPurpose purpose{communicator, label_};
  return reduction_->advance();
}

bool GradientBucket::record(const Reduction& reduction, TraceSink* trace, double& seconds) {
  const auto times = reduction.times();
  if (!times) return false;
  seconds += times->seconds_running();
  statistics_.seconds_reducing += times->seconds_running();
  ++statistics_.reductions;
  if (trace != nullptr) {
    trace->span("communication", text("bucket ", view_.index, " queued"), times->called, times->began);
    trace->span("communication", text("bucket ", view_.index, " reduced"), times->began, times->ended, *label_);
  }
  return true;
}

double GradientBucket::record_former(TraceSink* trace) {
  double seconds = 0;
  if (unrecorded_ && record(*unrecorded_, trace, seconds)) unrecorded_.reset();
  return seconds;
}

double GradientBucket::record(TraceSink* trace) {
  double seconds = record_former(trace);
  is_recorded_ = record(*reduction_, trace, seconds);
  return seconds;
}

void GradientBucket::release() {
  kept_.clear();
  streams_.clear();
  const bool on_device = view_.flat.defined() && !view_.flat.is_cpu();
  if (reduction_) unrecorded_ = on_device && !is_recorded_ ? std::move(reduction_) : nullptr;
  reduction_.reset();
  is_recorded_ = false;
  if (!memory_->release()) return;
  places_.clear();
  view_.flat = at::Tensor();
}

void GradientBucket::abandon() noexcept {
  if (!reduction_ || view_.flat.is_cpu()) return;
  try {
    reduction_->abandon();
  } catch (...) {
    // The communicator has failed and writes nothing any more.
  }
}

GradientBuckets::GradientBuckets(WireFormat& format, Communicator& communicator, TraceSink* trace)
    : format_(format), communicator_(communicator), trace_(trace) {}

void GradientBuckets::make(const std::vector<Bucket>& plan, const ModuleParameters& parameters, std::size_t alone_bytes,
                           const std::string& owner) {
  buckets_.clear();
  // Autograd's allocations are directed to other memory on the host only.
  if (!communicator_.device().is_cpu()) alone_bytes = BucketLimits::kNever;
  memory_ = alone_bytes == BucketLimits::kNever ? std::make_unique<GradientMemory>(communicator_)
                                                : make_zero_copy_memory(communicator_);
  std::vector<BucketView> views;
  for (const auto& bucket : plan) {
    std::vector<const ModuleParameter*> members;
    for (const auto index : bucket.members) members.push_back(&parameters[index]);
    const bool is_zero_copy = members.size() == 1 && bucket.bytes > 0 && bucket.bytes >= alone_bytes;
    buckets_.emplace_back(buckets_.size(), members, *memory_, is_zero_copy);
    views.push_back(buckets_.back().view());
  }
  memory_->complete();
  set_owner(owner);
  format_.plan(views, communicator_);
}

void GradientBuckets::set_owner(const std::string& owner) {
  for (auto& bucket : buckets_) bucket.set_label(label_of(bucket.view(), buckets_.size(), owner));
}

void GradientBuckets::begin_backward() {
  memory_->begin_backward();
}

void GradientBuckets::end_backward() {
  memory_->end_backward();
}

void GradientBuckets::wait() {
  end_backward();
  std::vector<GradientBucket*> under_way;
  for (auto& bucket : buckets_) under_way.push_back(&bucket);
  while (!under_way.empty()) {
    std::erase_if(under_way, [this](GradientBucket* bucket) { return bucket->advance(communicator_); });
  }
  for (auto& bucket : buckets_) seconds_reducing_ += bucket.record(trace_);
}

GradientBuckets::~GradientBuckets() {
  for (auto& bucket : buckets_) bucket.abandon();
}

void GradientBuckets::release() {
  for (auto& bucket : buckets_) bucket.release();
  end_backward();
}

void GradientBuckets::add_to(SynchronizationStatistics& statistics) {
  for (auto& bucket : buckets_) seconds_reducing_ += bucket.record_former(trace_);
  statistics.seconds_reducing = seconds_reducing_;
  for (const auto& bucket : buckets_) statistics.buckets.push_back(bucket.statistics());
}

}  // namespace libtrain::detail
