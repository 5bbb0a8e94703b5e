#include <libtrain/sync/wire/detail/low_rank_bucket.hpp>

#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <libtrain/numeric/detail/low_rank.hpp>
#include <libtrain/numeric/detail/seeded_values.hpp>

namespace libtrain::detail {

namespace {

constexpr double kMinLength = 1e-30;
constexpr double kMaxError = 1e15;  // its square, summed over rows or columns, is still a float32

// The memory of a dense gradient as a row-major matrix. A low-rank product allows any order of the columns that is the
// same on all ranks and in all rounds.
at::Tensor as_matrix(const at::Tensor& gradient) {
  std::int64_t rows = 1;
  std::int64_t largest_stride = 0;
  for (std::int64_t dimension = 0; dimension < gradient.dim(); ++dimension) {
    if (gradient.size(dimension) <= 1 || gradient.stride(dimension) <= largest_stride) continue;
    largest_stride = gradient.stride(dimension);
    rows = gradient.size(dimension);
  }
  const auto columns = gradient.numel() / rows;
  return gradient.as_strided({rows, columns}, {columns, 1});
}

bool is_compressed(const at::Tensor& matrix, const PowerSgdOptions& options) {
  const auto factors = static_cast<double>(matrix.size(0) + matrix.size(1)) * static_cast<double>(options.rank);
  return factors * options.min_compression_rate <= static_cast<double>(matrix.numel());
}

// Parts of a message start at multiples of a cache line.
std::int64_t padded(std::int64_t elements) {
  constexpr std::int64_t kStep = 16;
  return (elements + kStep - 1) / kStep * kStep;
}

bool is_all_finite(const at::Tensor& tensor) {
  return tensor.isfinite().all().item<bool>();
}

// In host memory.
bool orthogonalize_columns(const at::Tensor& p) {
  return p.scalar_type() == at::kDouble ? orthogonalize(p.mutable_data_ptr<double>(), p.size(0), p.size(1))
                                        : orthogonalize(p.mutable_data_ptr<float>(), p.size(0), p.size(1));
}

template <typename T>
void multiply_on_host(const at::Tensor& p, const at::Tensor& q, const at::Tensor& product) {
  low_rank_product(p.const_data_ptr<T>(), q.const_data_ptr<T>(), product.mutable_data_ptr<T>(), product.size(0),
                   product.size(1), p.size(1));
}

void multiply_into(at::Tensor& product, const at::Tensor& p, const at::Tensor& q) {
  if (!product.is_cpu()) {
    at::mm_out(product, p, q);
  } else if (product.scalar_type() == at::kDouble) {
    multiply_on_host<double>(p, q, product);
  } else {
    multiply_on_host<float>(p, q, product);
  }
}

}  // namespace

bool LowRankBucket::compresses(const BucketView& bucket, const PowerSgdOptions& options) {
  const auto type = bucket.flat.scalar_type();
  if (type != at::kFloat && type != at::kDouble) return false;
  for (const auto& gradient : bucket.gradients) {
    if (is_compressed(as_matrix(gradient), options)) return true;
  }
  return false;
}

LowRankBucket::LowRankBucket(const BucketView& bucket, const PowerSgdOptions& options, LowRankMemories& memories,
                             Communicator& communicator)
    : options_(options) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (std::size_t index = 0; index < bucket.gradients.size(); ++index) {
    const auto& gradient = bucket.gradients[index];
    const auto matrix = as_matrix(gradient);
    if (is_compressed(matrix, options)) {
      matrices_.push_back({.name = bucket.names[index], .gradient = matrix});
      gradients.push_back(gradient);
    } else if (gradient.numel() > 0) {
      others_.push_back(gradient.as_strided({gradient.numel()}, {1}));
    }
  }
  allocate(communicator);

  std::int64_t offset = 0;
  for (std::size_t index = 0; index < matrices_.size(); ++index) {
    auto& matrix = matrices_[index];
    recall(matrix, gradients[index], memories);
    const auto elements = options_.rank * matrix.gradient.size(1);
    const auto q = q_flat_.narrow(0, offset, elements).view({options_.rank, -1});
    offset += padded(elements);
    const bool is_new = !matrix.memory->q.defined();
    if (!is_new) q.copy_(matrix.memory->q);
    matrix.memory->q = q;
    if (is_new) draw(matrix);
  }
}

void LowRankBucket::allocate(Communicator& communicator) {
  std::int64_t p_elements = 0;
  std::int64_t q_elements = 0;
  for (const auto& matrix : matrices_) {
    p_elements += padded(matrix.gradient.size(0) * options_.rank);
    q_elements += padded(matrix.gradient.size(1) * options_.rank);
  }
  const auto type = matrices_.front().gradient.scalar_type();
  p_flat_ = communicator.allocate(p_elements, type);
  q_flat_ = communicator.allocate(q_elements, type);
  own_q_flat_ = communicator.allocate(q_elements, type);
  std::int64_t p_offset = 0;
  std::int64_t q_offset = 0;
  for (auto& matrix : matrices_) {
    const auto p_size = matrix.gradient.size(0) * options_.rank;
    const auto q_size = matrix.gradient.size(1) * options_.rank;
    matrix.p = p_flat_.narrow(0, p_offset, p_size).view({-1, options_.rank});
    matrix.own_q = own_q_flat_.narrow(0, q_offset, q_size).view({options_.rank, -1});
    p_offset += padded(p_size);
    q_offset += padded(q_size);
  }
  std::int64_t others = 0;
  for (const auto& other : others_) others += other.numel();
  if (others > 0) others_flat_ = communicator.allocate(others, type);
}

void LowRankBucket::recall(Matrix& matrix, const at::Tensor& gradient, LowRankMemories& memories) const {
  auto& memory = memories[matrix.name];
  const auto sizes = gradient.sizes().vec();
  const auto strides = gradient.strides().vec();
  const bool fits = memory && memory->sizes == sizes && memory->strides == strides &&
                    memory->q.scalar_type() == gradient.scalar_type() && memory->q.device() == gradient.device();
  if (!fits) {
    memory = std::make_shared<LowRankMemory>();
    memory->sizes = sizes;
    memory->strides = strides;
    if (options_.error_feedback) memory->error = at::zeros(matrix.gradient.sizes(), matrix.gradient.options());
  }
  matrix.memory = memory;
}

void LowRankBucket::draw(const Matrix& matrix) const {
  auto& memory = *matrix.memory;
  const auto seed = seed_of(options_.seed, matrix.name, memory.draws++);
  const auto values = at::empty(memory.q.sizes(), at::kDouble);
  auto* data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) data[i] = uniform_value(seed, static_cast<std::uint64_t>(i));
  memory.q.copy_(values);
}

Work LowRankBucket::send_p(Communicator& communicator) {
  const at::NoGradGuard no_grad;
  std::int64_t offset = 0;
  for (const auto& other : others_) {
    others_flat_.narrow(0, offset, other.numel()).copy_(other);
    offset += other.numel();
  }
  others_work_ = offset > 0 ? communicator.all_reduce(others_flat_, ReduceOp::average) : Work{};

  for (auto& matrix : matrices_) {
    const auto& memory = *matrix.memory;
    if (!options_.warm_start) draw(matrix);
    if (memory.error.defined()) matrix.gradient.add_(memory.error);
    at::mm_out(matrix.p, matrix.gradient, memory.q.t());
  }
  p_work_ = communicator.all_reduce(p_flat_, ReduceOp::average);
  return offset > 0 ? others_work_ : p_work_;
}

void LowRankBucket::abandon() {
  for (auto* const work : {&others_work_, &p_work_, &q_work_}) work->wait();
}

Work LowRankBucket::send_q(Communicator& communicator) {
  const at::NoGradGuard no_grad;
  others_work_.wait();
  p_work_.wait();
  const auto host = p_flat_.cpu();  // the same memory if it is on the host; otherwise all matrices in one copy
  for (auto& matrix : matrices_) {
    const auto offset = matrix.p.storage_offset() - p_flat_.storage_offset();
    matrix.finite = orthogonalize_columns(host.narrow(0, offset, matrix.p.numel()).view(matrix.p.sizes()));
  }
  if (!p_flat_.is_cpu()) p_flat_.copy_(host);
  for (auto& matrix : matrices_) {
    if (matrix.finite) {
      at::mm_out(matrix.own_q, matrix.p.t(), matrix.gradient);
    } else {
      // All ranks send their common Q, whose average is Q again, scaled in case its length made P overflow.
      const auto& q = matrix.memory->q;
      at::div_out(matrix.own_q, q, q.abs().max().clamp_min(kMinLength));
    }
  }
  q_work_ = communicator.all_reduce(own_q_flat_, q_flat_, ReduceOp::average);
  return q_work_;
}

void LowRankBucket::reconstruct() {
  const at::NoGradGuard no_grad;
  q_work_.wait();
  std::int64_t offset = 0;
  for (const auto& other : others_) {
    other.copy_(others_flat_.narrow(0, offset, other.numel()));
    offset += other.numel();
  }

  const bool all_finite = is_all_finite(q_flat_);
  for (auto& matrix : matrices_) {
    auto& memory = *matrix.memory;
    if (!matrix.finite || !(all_finite || is_all_finite(memory.q))) {
      give_up(matrix);
      continue;
    }
    if (memory.error.defined()) at::addmm_out(memory.error, matrix.gradient, matrix.p, matrix.own_q, 1, -1);
    multiply_into(matrix.gradient, matrix.p, memory.q);
  }
}

// All ranks have the same averages, and so give up the same matrices.
void LowRankBucket::give_up(const Matrix& matrix) const {
  auto& memory = *matrix.memory;
  matrix.gradient.fill_(std::numeric_limits<double>::quiet_NaN());
  if (!is_all_finite(memory.q)) draw(matrix);
  // A failed round does not change the error, but an error that overflows would make all later rounds fail, too.
  if (memory.error.defined()) memory.error.nan_to_num_(0.0, 0.0, 0.0).clamp_(-kMaxError, kMaxError);
}

}  // namespace libtrain::detail
