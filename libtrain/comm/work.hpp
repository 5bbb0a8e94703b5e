#pragma once

#include <memory>

namespace libtrain {

namespace detail {
struct Operation;
}

/// A collective under way. Copies refer to the same operation; dropping it does not cancel it, and the tensors it was
/// given stay alive until it has ended. Any thread may wait.
class Work {
 public:
  /// Already done.
  Work() = default;
  explicit Work(std::shared_ptr<detail::Operation> operation) : operation_(std::move(operation)) {}

  /// Returns when the result is in place; throws what the operation threw, or CommunicationError when its deadline has
  /// passed.
  void wait();

  bool done() const;

 private:
  std::shared_ptr<detail::Operation> operation_;
};

}  // namespace libtrain
