#include <libtrain/checkpoint/detail/state_dict_pickle.hpp>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/file_fault.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMaxValues = 8'000'000;
constexpr int kMaxNesting = 64;
constexpr std::size_t kMaxMarks = 1000;  // of values that are not complete yet

enum class Callee { none, ordered_dict, size, tensor, tensor_of_dtype, parameter, storage, untyped_storage };

// What a name of Python stands for.
struct Global {
  std::string_view name;
  Callee callee = Callee::none;
  ElementType type = ElementType::uint8;  // of a storage or a dtype
};

constexpr Global kGlobals[] = {
    {"collections.OrderedDict", Callee::ordered_dict},
    {"torch.Size", Callee::size},
    {"torch._utils._rebuild_tensor_v2", Callee::tensor},
    {"torch._utils._rebuild_tensor_v3", Callee::tensor_of_dtype},
    {"torch._utils._rebuild_parameter", Callee::parameter},
    {"torch.storage.UntypedStorage", Callee::untyped_storage},
    {"torch.BFloat16Storage", Callee::storage, ElementType::bfloat16},
    {"torch.BoolStorage", Callee::storage, ElementType::boolean},
    {"torch.ByteStorage", Callee::storage, ElementType::uint8},
    {"torch.CharStorage", Callee::storage, ElementType::int8},
    {"torch.ComplexDoubleStorage", Callee::storage, ElementType::complex128},
    {"torch.ComplexFloatStorage", Callee::storage, ElementType::complex64},
    {"torch.DoubleStorage", Callee::storage, ElementType::float64},
    {"torch.FloatStorage", Callee::storage, ElementType::float32},
    {"torch.HalfStorage", Callee::storage, ElementType::float16},
    {"torch.IntStorage", Callee::storage, ElementType::int32},
    {"torch.LongStorage", Callee::storage, ElementType::int64},
    {"torch.ShortStorage", Callee::storage, ElementType::int16},
    {"torch.bfloat16", Callee::none, ElementType::bfloat16},
    {"torch.bool", Callee::none, ElementType::boolean},
    {"torch.complex128", Callee::none, ElementType::complex128},
    {"torch.complex64", Callee::none, ElementType::complex64},
    {"torch.float16", Callee::none, ElementType::float16},
    {"torch.float32", Callee::none, ElementType::float32},
    {"torch.float64", Callee::none, ElementType::float64},
    {"torch.float8_e4m3fn", Callee::none, ElementType::float8_e4m3},
    {"torch.float8_e4m3fnuz", Callee::none, ElementType::float8_e4m3fnuz},
    {"torch.float8_e5m2", Callee::none, ElementType::float8_e5m2},
    {"torch.float8_e5m2fnuz", Callee::none, ElementType::float8_e5m2fnuz},
    {"torch.float8_e8m0fnu", Callee::none, ElementType::float8_e8m0},
    {"torch.int16", Callee::none, ElementType::int16},
    {"torch.int32", Callee::none, ElementType::int32},
    {"torch.int64", Callee::none, ElementType::int64},
    {"torch.int8", Callee::none, ElementType::int8},
    {"torch.uint16", Callee::none, ElementType::uint16},
    {"torch.uint32", Callee::none, ElementType::uint32},
    {"torch.uint64", Callee::none, ElementType::uint64},
    {"torch.uint8", Callee::none, ElementType::uint8},
};

const Global& global_of(const std::string& name) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return global;
  }
  throw FileFault{
      text("needs '", name.substr(0, 200), "', which is code: only tensors, dicts, lists and plain values are read"),
      "Save the state dict alone, in Python: torch.save(model.state_dict(), path)."};
}

enum class Kind : std::uint8_t { plain, integer, string, global, tuple, list, dict, storage, tensor };

using Reference = std::uint32_t;  // of a value

struct Value {
  Kind kind = Kind::plain;
  std::int64_t integer = 0;  // the number; the index of the global, the storage or the tensor
  std::string_view string = {};
  std::vector<Reference> items = {};  // of a dict the keys and values in turn
};

struct Storage {
  std::string_view key;
  std::optional<ElementType> type;
  std::uint64_t bytes;
};

class PickleMachine {
 public:
  explicit PickleMachine(std::string_view pickle) : pickle_(pickle) {}

  // The value of the whole pickle.
  Reference run() {
    while (step(take_byte())) continue;
    if (position_ != pickle_.size()) fail("ends before its last byte");
    if (!marks_.empty() || stack_.size() != 1) fail("ends with more or less than one value");
    return stack_.back();
  }

  const Value& operator[](Reference value) const { return values_[value]; }
  const std::vector<PickledTensor>& tensors() const { return tensors_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileFault{text("its pickle ", what, " at byte ", position_)};
  }

  // Values

  Reference add(Value value) {
    if (values_.size() == kMaxValues) fail(text("has more than ", kMaxValues, " values"));
    values_.push_back(std::move(value));
    return static_cast<Reference>(values_.size() - 1);
  }

  bool push(Value value) {
    stack_.push_back(add(std::move(value)));
    return true;
  }

  Value& top() {
    if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size()))
      fail("takes a value that it does not have");
    return values_[stack_.back()];
  }

  Reference pop() {
    top();
    const Reference value = stack_.back();
    stack_.pop_back();
    return value;
  }

  std::vector<Reference> pop(std::size_t count) {
    std::vector<Reference> values(count);
    while (count > 0) values[--count] = pop();
    return values;
  }

  std::vector<Reference> pop_to_mark() {
    if (marks_.empty()) fail("takes a mark that it does not have");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    const std::vector<Reference> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }

  bool append(Kind kind, const std::vector<Reference>& items) {
    Value& container = top();
    if (container.kind != kind) fail("adds items to something else than a list or dict");
    if (kind == Kind::dict && items.size() % 2 != 0) fail("has a key without a value");
    container.items.insert(container.items.end(), items.begin(), items.end());
    return true;
  }

  const Value& expect(Reference reference, Kind kind, std::string_view what) const {
    const Value& value = values_[reference];
    if (value.kind != kind) fail(text("expects ", what, " where it has something else"));
    return value;
  }

  std::uint64_t natural(Reference reference, std::string_view what) const {
    const auto number = expect(reference, Kind::integer, what).integer;
    if (number < 0) fail(text("has ", number, " for ", what));
    return static_cast<std::uint64_t>(number);
  }

  std::vector<std::int64_t> naturals(Reference reference, std::string_view what) const {
    std::vector<std::int64_t> numbers;
    const auto& items = expect(reference, Kind::tuple, what).items;
    if (items.size() > kMaxDimensions) fail(text("has a tensor of more than ", kMaxDimensions, " dimensions"));
    for (const Reference item : items) numbers.push_back(static_cast<std::int64_t>(natural(item, what)));
    return numbers;
  }

  // Bytes

  std::string_view take(std::uint64_t count) {
    if (count > pickle_.size() - position_) fail("is truncated");
    const auto taken = pickle_.substr(position_, static_cast<std::size_t>(count));
    position_ += static_cast<std::size_t>(count);
    return taken;
  }

  std::uint8_t take_byte() { return static_cast<std::uint8_t>(take(1)[0]); }

  template <typename Number>
  Number take_number() {
    return load_little_endian<Number>(take(sizeof(Number)).data());
  }

  std::string_view take_line() {
    const auto end = pickle_.find('\n', position_);
    if (end == std::string_view::npos) fail("is truncated");
    const auto line = take(end + 1 - position_);
    return line.substr(0, line.size() - 1);
  }

  // Operations: those of Python's pickletools, by their codes.

  bool step(std::uint8_t operation) {
    switch (operation) {
      case 0x80:  // PROTO
        take(1);
        return true;
      case 0x95:  // FRAME
        take(8);
        return true;
      case '.':  // STOP
        return false;
      case '(':  // MARK
        if (marks_.size() == kMaxMarks) fail("nests values too deep");
        marks_.push_back(stack_.size());
        return true;
      case 'N':   // NONE
      case 0x88:  // NEWTRUE
        return push({.integer = operation == 0x88});
      case 0x89:  // NEWFALSE
        return push({});
      case 'G':  // BINFLOAT
        take(8);
        return push({});
      case 'K':  // BININT1
        return push({.kind = Kind::integer, .integer = take_byte()});
      case 'M':  // BININT2
        return push({.kind = Kind::integer, .integer = take_number<std::uint16_t>()});
      case 'J':  // BININT
        return push({.kind = Kind::integer, .integer = static_cast<std::int32_t>(take_number<std::uint32_t>())});
      case 0x8a:  // LONG1
        return push_long(take(take_byte()));
      case 'X':  // BINUNICODE
        return push({.kind = Kind::string, .string = take(take_number<std::uint32_t>())});
      case 0x8c:  // SHORT_BINUNICODE
        return push({.kind = Kind::string, .string = take(take_byte())});
      case ')':  // EMPTY_TUPLE
        return push({.kind = Kind::tuple});
      case 't':  // TUPLE
        return push({.kind = Kind::tuple, .items = pop_to_mark()});
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return push({.kind = Kind::tuple, .items = pop(std::size_t{operation} - 0x84)});
      case ']':  // EMPTY_LIST
        return push({.kind = Kind::list});
      case 'a':  // APPEND
        return append(Kind::list, pop(1));
      case 'e':  // APPENDS
        return append(Kind::list, pop_to_mark());
      case '}':  // EMPTY_DICT
        return push({.kind = Kind::dict});
      case 's':  // SETITEM
        return append(Kind::dict, pop(2));
      case 'u':  // SETITEMS
        return append(Kind::dict, pop_to_mark());
      case 'q':  // BINPUT
        return remember(take_byte());
      case 'r':  // LONG_BINPUT
        return remember(take_number<std::uint32_t>());
      case 0x94:  // MEMOIZE
        return remember(static_cast<std::uint32_t>(memo_.size()));
      case 'h':  // BINGET
        return recall(take_byte());
      case 'j':  // LONG_BINGET
        return recall(take_number<std::uint32_t>());
      case 'c': {  // GLOBAL
        const auto module = take_line();
        return push_global(module, take_line());
      }
      case 0x93: {  // STACK_GLOBAL
        const auto name = expect(pop(), Kind::string, "a name").string;
        return push_global(expect(pop(), Kind::string, "a name").string, name);
      }
      case 'Q':  // BINPERSID
        return push_storage(pop());
      case 'R': {  // REDUCE
        const Reference arguments = pop();
        return call(pop(), arguments);
      }
      case 'b': {  // BUILD: the _metadata of a state dict, which has no tensors
        expect(pop(), Kind::dict, "attributes");
        if (top().kind != Kind::dict) fail("gives attributes to something else than a dict");
        return true;
      }
      default:
        fail(text("has operation ", hexadecimal(operation, 2), ", which state dicts do not need,"));
    }
  }

  // A number of two's complement.
  bool push_long(std::string_view bytes) {
    if (bytes.size() > 8) return push({});  // not one of a tensor
    std::uint64_t number = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<std::uint8_t>(bytes[i]);
    const auto unused = static_cast<int>(64 - 8 * bytes.size());
    if (unused == 64) return push({.kind = Kind::integer});
    return push({.kind = Kind::integer, .integer = static_cast<std::int64_t>(number << unused) >> unused});
  }

  bool remember(std::uint32_t key) {
    top();
    if (memo_.size() == kMaxValues) fail(text("remembers more than ", kMaxValues, " values"));
    memo_[key] = stack_.back();
    return true;
  }

  bool recall(std::uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("recalls a value that it does not have");
    stack_.push_back(found->second);
    return true;
  }

  bool push_global(std::string_view module, std::string_view name) {
    const Global& global = global_of(text(module, '.', name));
    return push({.kind = Kind::global, .integer = &global - kGlobals});
  }

  const Global& global_at(Reference reference, std::string_view what) const {
    return kGlobals[static_cast<std::size_t>(expect(reference, Kind::global, what).integer)];
  }

  // ("storage", type, key, device, number of elements)
  bool push_storage(Reference identity) {
    const auto& parts = expect(identity, Kind::tuple, "the identity of a storage").items;
    if (parts.size() != 5 || expect(parts[0], Kind::string, "'storage'").string != "storage") {
      fail("expects the identity of a storage where it has something else");
    }
    const Global& kind = global_at(parts[1], "the type of a storage");
    if (kind.callee != Callee::storage && kind.callee != Callee::untyped_storage) {
      fail("expects the type of a storage where it has something else");
    }
    const bool is_typed = kind.callee == Callee::storage;
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(natural(parts[4], "the size of a storage"), bits_of(kind.type) / 8, &bytes)) {
      fail("has a storage of too many elements");
    }
    storages_.push_back({expect(parts[2], Kind::string, "the key of a storage").string,
                         is_typed ? std::optional{kind.type} : std::nullopt, bytes});
    return push({.kind = Kind::storage, .integer = static_cast<std::int64_t>(storages_.size() - 1)});
  }

  bool call(Reference function, Reference arguments_tuple) {
    const Global& global = global_at(function, "a function");
    // Copied: making values moves them.
    const std::vector<Reference> arguments = expect(arguments_tuple, Kind::tuple, "the arguments of a function").items;
    const auto require_count = [&](std::size_t least, std::size_t most) {
      if (arguments.size() < least || arguments.size() > most) {
        fail(text("gives ", arguments.size(), " arguments to ", global.name));
      }
    };
    switch (global.callee) {
      case Callee::ordered_dict:
        require_count(0, 0);
        return push({.kind = Kind::dict});
      case Callee::size:
        require_count(1, 1);
        expect(arguments[0], Kind::tuple, "the numbers of a shape");
        stack_.push_back(arguments[0]);
        return true;
      case Callee::tensor:
        require_count(6, 7);
        return push_tensor(arguments, std::nullopt, 6);
      case Callee::tensor_of_dtype: {
        require_count(7, 8);
        const Global& dtype = global_at(arguments[6], "a dtype");
        if (dtype.callee != Callee::none) fail("expects a dtype where it has something else");
        return push_tensor(arguments, dtype.type, 7);
      }
      case Callee::parameter:
        require_count(3, 3);
        expect(arguments[0], Kind::tensor, "the tensor of a parameter");
        stack_.push_back(arguments[0]);
        return true;
      default:
        fail(text("calls ", global.name, ", which is not a function,"));
    }
  }

  // (storage, first element, shape, strides, requires_grad, hooks[, dtype][, marks])
  bool push_tensor(const std::vector<Reference>& arguments, std::optional<ElementType> type, std::size_t marks) {
    const auto& storage =
        storages_[static_cast<std::size_t>(expect(arguments[0], Kind::storage, "the storage of a tensor").integer)];
    if (type.has_value() == storage.type.has_value()) fail("has a tensor with two types, or without one,");
    if (arguments.size() > marks) require_no_marks(arguments[marks]);
    PickledTensor tensor;
    tensor.info.type = type ? *type : *storage.type;
    tensor.info.shape = naturals(arguments[2], "the shape of a tensor");
    tensor.strides = naturals(arguments[3], "the strides of a tensor");
    tensor.first = natural(arguments[1], "the first element of a tensor");
    tensor.storage = storage.key;
    tensor.storage_bytes = storage.bytes;
    require_within(tensor);
    if (tensors_.size() == kMaxTensors) fail(text("has more than ", kMaxTensors, " tensors"));
    tensors_.push_back(std::move(tensor));
    return push({.kind = Kind::tensor, .integer = static_cast<std::int64_t>(tensors_.size() - 1)});
  }

  // Marks say that the numbers in memory are the conjugated or negated ones.
  void require_no_marks(Reference reference) const {
    const auto& marks = expect(reference, Kind::dict, "the marks of a tensor").items;
    for (std::size_t i = 1; i < marks.size(); i += 2) {
      if (values_[marks[i]].integer != 0) {
        throw FileFault{"has a tensor that is a conjugated or negated view of another",
                        "Save its resolve_conj() and resolve_neg()."};
      }
    }
  }

  void require_within(const PickledTensor& tensor) const {
    if (tensor.info.shape.size() != tensor.strides.size()) fail("has a tensor with other strides than its shape needs");
    const std::int64_t element = bits_of(tensor.info.type) / 8;
    bool is_empty = false;
    auto end = static_cast<std::int64_t>(tensor.first);  // in elements
    bool overflows = false;
    for (std::size_t i = 0; i < tensor.strides.size(); ++i) {
      std::int64_t steps = 0;
      if (tensor.info.shape[i] == 0) is_empty = true;
      overflows |= __builtin_mul_overflow(tensor.info.shape[i] - 1, tensor.strides[i], &steps);
      overflows |= __builtin_add_overflow(end, steps, &end);
    }
    if (!contiguous_bytes(tensor.info.type, tensor.info.shape)) fail("has a tensor of too many elements");
    if (is_empty) return;
    overflows |= __builtin_add_overflow(end, 1, &end) || __builtin_mul_overflow(end, element, &end);
    if (overflows || static_cast<std::uint64_t>(end) > tensor.storage_bytes) fail("has a tensor beyond its storage");
  }

  std::string_view pickle_;
  std::size_t position_ = 0;
  std::vector<Value> values_;
  std::vector<Reference> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint32_t, Reference> memo_;
  std::vector<Storage> storages_;
  std::vector<PickledTensor> tensors_;
};

// Collects the tensors under their names.
class Flattening {
 public:
  // A value may be part of many others, or of itself: what is made of it is limited by the size of the pickle.
  Flattening(const PickleMachine& machine, std::size_t pickle_bytes)
      : machine_(machine), left_(16 * pickle_bytes + 4096) {}

  void visit(Reference reference, const std::string& name, int depth) {
    const Value& value = machine_[reference];
    if (value.kind == Kind::tensor) return add(value, name);
    if (depth == kMaxNesting) throw FileFault{text("its dicts and lists are nested more than ", kMaxNesting, " deep")};
    const auto prefix = depth == 0 ? std::string{} : name + '.';
    const bool is_dict = value.kind == Kind::dict;
    for (std::size_t i = 0; i < value.items.size(); i += is_dict ? 2 : 1) {
      spend(1);
      const Reference item = value.items[is_dict ? i + 1 : i];
      if (!may_have_tensors(machine_[item].kind)) continue;
      const auto inner = prefix + (is_dict ? key_of(machine_[value.items[i]]) : std::to_string(i));
      spend(inner.size());
      visit(item, inner, depth + 1);
    }
  }

  std::vector<PickledTensor> take() { return std::move(tensors_); }

 private:
  static bool may_have_tensors(Kind kind) {
    return kind == Kind::tensor || kind == Kind::dict || kind == Kind::list || kind == Kind::tuple;
  }

  static std::string key_of(const Value& key) {
    if (key.kind == Kind::string) return std::string{key.string};
    if (key.kind == Kind::integer) return std::to_string(key.integer);
    throw FileFault{"has a dict with a key that is neither text nor a whole number",
                    "Save the state dict alone, in Python: torch.save(model.state_dict(), path)."};
  }

  void spend(std::size_t bytes) {
    if (bytes > left_) throw FileFault{"its dicts and lists contain each other many times"};
    left_ -= bytes;
  }

  void add(const Value& value, const std::string& name) {
    if (name.size() > kMaxNameBytes) throw FileFault{text("has a name longer than ", kMaxNameBytes, " bytes")};
    if (!names_.insert(name).second) throw FileFault{text("has two tensors called '", name, "'")};
    auto tensor = machine_.tensors()[static_cast<std::size_t>(value.integer)];
    tensor.info.name = name;
    tensors_.push_back(std::move(tensor));
  }

  const PickleMachine& machine_;
  std::size_t left_;
  std::set<std::string> names_;
  std::vector<PickledTensor> tensors_;
};

}  // namespace

std::vector<PickledTensor> read_state_dict_pickle(std::string_view pickle) {
  PickleMachine machine{pickle};
  const Reference root = machine.run();
  Flattening flattening{machine, pickle.size()};
  flattening.visit(root, "", 0);
  return flattening.take();
}

}  // namespace libtrain::detail
