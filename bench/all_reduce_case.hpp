#pragma once

#include <cstdint>
#include <string_view>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain::bench {

enum class Placement { in_place, out_of_place };
enum class Memory { allocated, ordinary };  ///< from Communicator::allocate, or wherever torch puts it

/// What is measured at one size.
struct AllReduceCase {
  std::int64_t bytes = 0;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  Placement placement = Placement::in_place;
  Memory memory = Memory::allocated;

  std::int64_t count() const { return bytes / static_cast<std::int64_t>(size_of(type)); }
};

/// What the options --dtype, --op, --in-place and --memory say. Each throws UsageError that lists the choices.
DataType parse_type(std::string_view name);
ReduceOp parse_op(std::string_view name);
Placement parse_placement(std::string_view name);
Memory parse_memory(std::string_view name);

/// Throws UsageError where `bytes` are not a whole number of elements, or the type has no such operation.
void check_case(const AllReduceCase& measured);

}  // namespace libtrain::bench
