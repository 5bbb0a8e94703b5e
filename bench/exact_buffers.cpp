#include <bench/exact_buffers.hpp>

#include <torch/types.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain::bench {

namespace {

// A prime: values at the wrong place are wrong also where the distance is a power of two.
constexpr std::int64_t kPeriod = 251;

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return a + b;
    case ReduceOp::minimum:
      return torch::minimum(a, b);
    case ReduceOp::maximum:
      return torch::maximum(a, b);
    case ReduceOp::product:
      return a * b;
  }
  throw UsageError("There is no such reduction.");
}

}  // namespace

ExactBuffers::ExactBuffers(Communicator& communicator, const AllReduceCase& measured)
    : case_(measured), rank_(communicator.rank()), world_size_(communicator.world_size()) {
  const auto make = [&] {
    const auto type = detail::scalar_type_of(case_.type);
    return case_.memory == Memory::allocated ? communicator.allocate(case_.count(), type)
                                             : torch::empty({case_.count()}, type);
  };
  input_ = make();
  output_ = case_.placement == Placement::in_place ? input_ : make();
}

// One period, as int64.
at::Tensor ExactBuffers::values_of(int rank) const {
  const auto index = torch::arange(kPeriod);
  if (case_.op == ReduceOp::product) return 1 + (index + rank).remainder(4).eq(0).to(at::kLong);
  const auto small = (index + 3 * rank).remainder(8);
  // An average of multiples of the world size is a whole number too.
  return case_.op == ReduceOp::average ? small * world_size_ : small;
}

at::Tensor ExactBuffers::expected() const {
  auto result = values_of(0);
  for (int rank = 1; rank < world_size_; ++rank) result = combined(result, values_of(rank), case_.op);
  return case_.op == ReduceOp::average ? result.floor_divide(world_size_) : result;
}

at::Tensor ExactBuffers::spread(const at::Tensor& period) const {
  const auto repeats = case_.count() / kPeriod + 1;
  return period.to(input_.scalar_type()).repeat({repeats}).narrow(0, 0, case_.count());
}

void ExactBuffers::fill() {
  output_.fill_(100);
  input_.copy_(spread(values_of(rank_)));
}

void ExactBuffers::clear() {
  const int neutral = case_.op == ReduceOp::product ? 1 : 0;
  input_.fill_(neutral);
  output_.fill_(neutral);
}

std::int64_t ExactBuffers::count_wrong() const {
  auto wrong = output_.ne(spread(expected())).sum();
  if (case_.placement == Placement::out_of_place) wrong += input_.ne(spread(values_of(rank_))).sum();
  return wrong.item<std::int64_t>();
}

}  // namespace libtrain::bench
