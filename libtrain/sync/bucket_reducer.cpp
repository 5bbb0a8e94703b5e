#include <libtrain/sync/bucket_reducer.hpp>

#include <ATen/core/grad_mode.h>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/wire/plain.hpp>

namespace libtrain::detail {

namespace {

// "bucket 2 of 5 ('fc.weight' to 'layer4.bn2.bias')"
std::string label_of(const BucketView& bucket, std::size_t buckets, const std::string& owner) {
  const auto& names = bucket.names;
  const auto range =
      names.size() == 1 ? text("'", names.front(), "'") : text("'", names.front(), "' to '", names.back(), "'");
  return text("bucket ", bucket.index, " of ", buckets, owner, " (", range, ")");
}

std::shared_ptr<WireFormat> format_or_plain(std::shared_ptr<WireFormat> format, int world_size) {
  if (format || world_size == 1) return format;
  return std::make_shared<PlainWireFormat>();
}

}  // namespace

BucketReducer::BucketReducer(Communicator& communicator, std::shared_ptr<WireFormat> wire_format, TraceSink* trace)
    : communicator_(communicator),
      wire_format_(format_or_plain(std::move(wire_format), communicator.world_size())),
      trace_(trace) {}

BucketReducer::~BucketReducer() {
  drop_blocks();
}

void BucketReducer::drop_blocks() {
  if (blocks_) blocks_->retire();
  blocks_.reset();
}

void BucketReducer::clear() {
  reductions_.clear();
  buckets_.clear();
  flags_.clear();
  labels_.clear();
  statistics_.clear();
  drop_blocks();
  started_ = 0;
}

void BucketReducer::plan(const std::vector<Bucket>& plan, const std::vector<std::vector<BucketMember>>& members,
                         std::size_t alone_bytes) {
  clear();
  has_16_bits_ = false;
  std::vector<BucketView> views;
  for (std::size_t index = 0; index < plan.size(); ++index) {
    flags_.emplace_back(members[index].size());
    statistics_.push_back({.bytes = plan[index].bytes});
    has_16_bits_ = has_16_bits_ || size_of(plan[index].type) == 2;
    if (!has_memory()) continue;
    const bool is_alone = members[index].size() == 1 && plan[index].bytes > 0 && plan[index].bytes >= alone_bytes;
    if (is_alone && !blocks_) blocks_ = std::make_shared<GradientBlocks>(communicator_);
    buckets_.emplace_back(index, members[index], communicator_, is_alone ? blocks_ : nullptr);
    views.push_back(buckets_.back().view());
  }
  if (blocks_) blocks_->make_all();
  make_labels();
  if (has_memory()) wire_format_->plan(views, communicator_);
}

void BucketReducer::set_owner(const std::string& owner) {
  owner_ = owner;
  make_labels();
}

void BucketReducer::make_labels() {
  labels_.clear();
  for (const auto& bucket : buckets_) {
    labels_.push_back(std::make_shared<const std::string>(label_of(bucket.view(), buckets_.size(), owner_)));
  }
}

void BucketReducer::expect_gradients() {
  if (blocks_) blocks_->open();
}

void BucketReducer::expect_no_gradients() {
  if (blocks_) blocks_->close();
}

void BucketReducer::weigh(const at::Tensor& gradients, double weight) {
  if (weight == 1) return;
  const at::NoGradGuard no_grad;
  if (weight == 0) {
    gradients.zero_();  // not a product, which would keep NaN
  } else {
    gradients.mul_(weight);
  }
}

void BucketReducer::start_next(double weight) {
  const auto index = started_;
  if (!has_memory()) {
    ++started_;
    return;
  }
  auto& bucket = buckets_[index];
  weigh(bucket.gradients(), weight);
  flags_[index].write_to(bucket.view().flags);
  const CallPurpose purpose{communicator_, labels_[index]};
  reductions_.push_back(wire_format_->start(bucket.view(), communicator_));
  ++started_;
}

void BucketReducer::finish() {
  expect_no_gradients();
  std::vector<bool> done(reductions_.size(), false);
  for (std::size_t left = reductions_.size(); left > 0;) {
    for (std::size_t index = 0; index < reductions_.size(); ++index) {
      if (done[index]) continue;
      const CallPurpose purpose{communicator_, labels_[index]};
      done[index] = reductions_[index]->advance();
      if (done[index]) --left;
    }
  }
  for (std::size_t index = 0; index < reductions_.size(); ++index) {
    note(index);
    flags_[index].read_from(buckets_[index].view().flags);
  }
}

void BucketReducer::note(std::size_t bucket) {
  const auto times = reductions_[bucket]->times();
  if (!times) return;
  statistics_[bucket].seconds_reducing += times->seconds_running();
  seconds_reducing_ += times->seconds_running();
  ++statistics_[bucket].reductions;
  if (trace_ == nullptr) return;
  trace_->span("communication", text("bucket ", bucket, " queued"), times->called, times->began);
  trace_->span("communication", text("bucket ", bucket, " reduced"), times->began, times->ended, *labels_[bucket]);
}

void BucketReducer::reset() {
  reductions_.clear();
  for (auto& flags : flags_) flags.clear();
  for (auto& bucket : buckets_) bucket.release();
  expect_no_gradients();
  started_ = 0;
}

void BucketReducer::add_to(SynchronizationStatistics& statistics) const {
  statistics.seconds_reducing = seconds_reducing_;
  statistics.buckets = statistics_;
}

}  // namespace libtrain::detail
