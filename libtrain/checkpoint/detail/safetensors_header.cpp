#include <libtrain/checkpoint/detail/safetensors_header.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/file_fault.hpp>

namespace libtrain::detail {

namespace {

constexpr int kMaxDepth = 4;  // the format needs 3

// Receives the JSON text in events, so that keys which appear twice are seen, and nothing that is nested is built.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t number) override { return other(std::to_string(number)); }
  bool number_float(number_float_t, const string_t& digits) override { return other(digits); }
  bool binary(binary_t&) override { return other("binary data"); }

  bool number_unsigned(number_unsigned_t number) override {
    if (numbers_ == nullptr || depth_ != 3) return other(std::to_string(number));
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(text("numbers below 2^63 in '", field_, "'"), std::to_string(number));
    }
    if (numbers_->size() == kMaxDimensions) {
      fail(text("at most ", kMaxDimensions, " numbers in '", field_, "'"), "more");
    }
    numbers_->push_back(static_cast<std::int64_t>(number));
    return true;
  }

  bool string(string_t& value) override {
    if (is_metadata_ && depth_ == 2) {
      header_.metadata[field_] = value;
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") return other("a string");
    tensor_.info.type = type_of(value);
    return true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      begin_entry(key);
    } else if (depth_ == 2) {
      if (!fields_.insert(key).second) fail("every key once", text("'", key, "' twice"));
      field_ = key;
    }
    return true;
  }

  bool start_object(std::size_t) override {
    deepen();
    if (depth_ > 2 && !is_ignored()) unexpected("an object");
    if (depth_ == 2) fields_.clear();
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !is_metadata_) end_tensor();
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    deepen();
    if (depth_ < 3) unexpected("an array");
    if (depth_ == 3 && !is_metadata_ && field_ == "shape") numbers_ = &tensor_.info.shape;
    if (depth_ == 3 && !is_metadata_ && field_ == "data_offsets") numbers_ = &offsets_;
    if (numbers_ == nullptr && !is_ignored()) unexpected("an array");
    if (numbers_ != nullptr && depth_ > 3) unexpected("an array");
    return true;
  }

  bool end_array() override {
    numbers_ = nullptr;
    --depth_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw FileFault{text("its header is not valid JSON in UTF-8 at byte offset ",
                         kSafetensorsPrefix + std::max<std::size_t>(position, 1) - 1)};
  }

 private:
  // Fields of a tensor that the format does not have are skipped, as in the reference reader.
  bool is_ignored() const {
    return depth_ > 1 && !is_metadata_ && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets";
  }

  void deepen() {
    if (++depth_ > kMaxDepth) fail(text("values nested at most ", kMaxDepth, " deep"), "deeper ones");
  }

  bool other(const std::string& found) {
    if (!is_ignored()) unexpected(found);
    return true;
  }

  [[noreturn]] void unexpected(const std::string& found) const {
    if (is_metadata_ && (depth_ == 1 || fields_.empty())) fail("an object of strings", found);
    if (is_metadata_) fail(text("a string for '", field_, "'"), found);
    if (field_ == "dtype") fail("a string for 'dtype'", found);
    if (field_.empty()) fail("an object with 'dtype', 'shape' and 'data_offsets'", found);
    fail(text("an array of plain non-negative numbers for '", field_, "'"), found);
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    const auto where =
        entry_.empty() ? std::string{"its header"} : text(is_metadata_ ? "" : "tensor ", "'", entry_, "'");
    throw FileFault{text(where, ": expected ", expected, ", found ", found)};
  }

  void begin_entry(const std::string& name) {
    entry_ = name;
    is_metadata_ = name == kSafetensorsMetadata;
    field_.clear();
    fields_.clear();
    tensor_ = {};
    offsets_.clear();
    if (name.size() > kMaxNameBytes) {
      entry_ = name.substr(0, 100) + "...";
      fail(text("names of at most ", kMaxNameBytes, " bytes"), text(name.size()));
    }
    if (!names_.insert(name).second) fail("every name once", "it twice");
    if (names_.size() > kMaxTensors) fail(text("at most ", kMaxTensors, " tensors"), "more");
  }

  ElementType type_of(const std::string& name) const {
    const auto type = element_type(name);
    if (!type) fail("an element type of the safetensors format", text("'", name, "'"));
    return *type;
  }

  void end_tensor() {
    for (const char* const field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) fail(text("the field '", field, "'"), "none");
    }
    if (offsets_.size() != 2) fail("two numbers in 'data_offsets'", text(offsets_.size()));
    if (offsets_[1] < offsets_[0]) fail("data that ends after its beginning", text(offsets_[0], " to ", offsets_[1]));
    const auto bytes = static_cast<std::uint64_t>(offsets_[1] - offsets_[0]);
    const auto expected = contiguous_bytes(tensor_.info.type, tensor_.info.shape);
    const auto description = text(to_string(tensor_.info.type), " of shape [", join(tensor_.info.shape, ", "), "]");
    if (!expected) fail("a size in whole bytes below 2^60", description);
    if (bytes != *expected) fail(text(*expected, " bytes for ", description), text(bytes, " in 'data_offsets'"));
    tensor_.info.name = entry_;
    tensor_.offset = static_cast<std::uint64_t>(offsets_[0]);
    tensor_.bytes = bytes;
    header_.tensors.push_back(std::move(tensor_));
  }

  SafetensorsHeader header_;
  std::set<std::string> names_;
  int depth_ = 0;  // of objects and arrays
  std::string entry_;
  bool is_metadata_ = false;
  std::string field_;  // of the entry
  std::set<std::string> fields_;
  StoredTensor tensor_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t>* numbers_ = nullptr;  // where those of the array go
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes) {
  if (!json.starts_with('{')) {
    throw FileFault{text("its header does not begin with '{' at byte offset ", kSafetensorsPrefix)};
  }
  // The parser takes it for the end of the text.
  if (const auto zero = json.find('\0'); zero != std::string_view::npos) {
    throw FileFault{text("its header is not valid JSON in UTF-8 at byte offset ", kSafetensorsPrefix + zero)};
  }
  HeaderReader reader;
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  auto header = reader.take();
  std::ranges::sort(header.tensors, {}, [](const StoredTensor& tensor) {
    return std::tuple{tensor.offset, tensor.bytes, std::string_view{tensor.info.name}};
  });
  std::uint64_t end = 0;
  for (const auto& [info, offset, bytes] : header.tensors) {
    if (offset != end) {
      throw FileFault{text("tensor '", info.name, "': expected data from ", end,
                           " on, where the previous tensor ends, found ", offset, " in 'data_offsets'")};
    }
    end += bytes;
  }
  if (end != data_bytes) {
    throw FileFault{text("expected ", end, " bytes after the header, found ", data_bytes,
                         data_bytes < end ? " (the file is truncated)" : " (the file has trailing bytes)")};
  }
  return header;
}

}  // namespace libtrain::detail
