#include <bench/all_reduce_case.hpp>

#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::bench {

namespace {

template <typename Choice>
struct Named {
  std::string_view name;
  Choice choice;
};

template <typename Choice>
Choice choose(std::string_view option, std::string_view given, const std::vector<Named<Choice>>& choices) {
  std::vector<std::string_view> names;
  for (const auto& [name, choice] : choices) {
    if (name == given) return choice;
    names.push_back(name);
  }
  throw UsageError(text("Option --", option, " is '", given, "': use one of ", join(names, ", "), "."));
}

template <typename Choice>
std::vector<Named<Choice>> named(const std::vector<Choice>& choices) {
  std::vector<Named<Choice>> result;
  for (const auto choice : choices) result.push_back({to_string(choice), choice});
  return result;
}

}  // namespace

DataType parse_type(std::string_view name) {
  return choose("dtype", name,
                named<DataType>({DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16,
                                 DataType::int32, DataType::int64, DataType::uint8}));
}

ReduceOp parse_op(std::string_view name) {
  return choose(
      "op", name,
      named<ReduceOp>({ReduceOp::sum, ReduceOp::average, ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product}));
}

Placement parse_placement(std::string_view name) {
  return choose<Placement>("in-place", name, {{"yes", Placement::in_place}, {"no", Placement::out_of_place}});
}

Memory parse_memory(std::string_view name) {
  return choose<Memory>("memory", name, {{"allocate", Memory::allocated}, {"ordinary", Memory::ordinary}});
}

void check_case(const AllReduceCase& measured) {
  const auto size = static_cast<std::int64_t>(size_of(measured.type));
  if (measured.bytes % size != 0) {
    throw UsageError(text(measured.bytes, " bytes are not a whole number of ", to_string(measured.type),
                          ": choose --sizes that are multiples of ", size, "."));
  }
  if (measured.op == ReduceOp::average && !is_floating(measured.type)) {
    throw UsageError(text("There is no average of ", to_string(measured.type), ": choose another --op or --dtype."));
  }
}

}  // namespace libtrain::bench
