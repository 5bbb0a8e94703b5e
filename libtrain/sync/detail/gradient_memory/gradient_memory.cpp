#include <libtrain/sync/detail/gradient_memory/gradient_memory.hpp>

#include <utility>

#include <c10/core/ScalarType.h>

#include <ATen/ops/from_blob.h>

#include <libtrain/sync/detail/gradient_memory/gradient_aliases.hpp>
#include <libtrain/sync/detail/gradient_memory/gradient_blocks.hpp>

namespace libtrain::detail {

namespace {

class FlatTensor final : public BucketMemory {
 public:
  explicit FlatTensor(at::Tensor flat) : flat_(std::move(flat)) {}
  at::Tensor flat() override { return flat_; }

 private:
  const at::Tensor flat_;
};

// One block in each round: the one in which autograd has left the gradient, or another one.
class RoundBlock final : public BucketMemory {
 public:
  RoundBlock(std::shared_ptr<GradientBlocks> blocks, std::size_t bytes, at::ScalarType type)
      : blocks_(std::move(blocks)), bytes_(bytes), type_(type) {
    blocks_->add(bytes);
  }

  at::Tensor flat() override {
    if (!block_.defined()) block_ = blocks_->take(bytes_);
    const auto elements = block_.numel() / static_cast<std::int64_t>(c10::elementSize(type_));
    return at::from_blob(block_.mutable_data_ptr(), {elements}, [storage = block_.storage()](void*) {}, type_);
  }

  bool adopt(const at::Tensor& gradient, const at::Tensor& incoming) override {
    if (!is_alone_in_memory(gradient, incoming)) return false;
    const auto block = blocks_->block_of(gradient);
    if (!block.defined()) return false;
    block_ = block;
    return true;
  }

  bool release() override {
    block_.reset();
    return true;
  }

 private:
  const std::shared_ptr<GradientBlocks> blocks_;
  const std::size_t bytes_;
  const at::ScalarType type_;
  at::Tensor block_;  // of bytes
};

class ZeroCopyMemory final : public GradientMemory {
 public:
  using GradientMemory::GradientMemory;

  // Gradients that users keep may outlive the synchronizer and the communicator.
  ~ZeroCopyMemory() override {
    if (blocks_) blocks_->retire();
  }

  std::unique_ptr<BucketMemory> make(std::int64_t elements, at::ScalarType type, bool is_zero_copy) override {
    if (!is_zero_copy) return GradientMemory::make(elements, type, is_zero_copy);
    if (!blocks_) blocks_ = std::make_shared<GradientBlocks>(communicator_);
    return std::make_unique<RoundBlock>(blocks_, static_cast<std::size_t>(elements) * c10::elementSize(type), type);
  }

  void complete() override {
    if (blocks_) blocks_->make_all();
  }

  void begin_backward() override {
    if (blocks_) blocks_->open();
  }

  void end_backward() override {
    if (blocks_) blocks_->close();
  }

 private:
  std::shared_ptr<GradientBlocks> blocks_;  // none without a large gradient
};

}  // namespace

std::unique_ptr<BucketMemory> GradientMemory::make(std::int64_t elements, at::ScalarType type, bool /*is_zero_copy*/) {
  return std::make_unique<FlatTensor>(communicator_.allocate(elements, type));
}

std::unique_ptr<GradientMemory> make_zero_copy_memory(Communicator& communicator) {
  return std::make_unique<ZeroCopyMemory>(communicator);
}

}  // namespace libtrain::detail
