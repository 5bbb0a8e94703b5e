#include <tools/checkpoint/compare.hpp>

#include <cstdint>
#include <filesystem>
#include <vector>

#include <libtrain/base/text.hpp>

#include <tools/checkpoint/folders.hpp>
#include <tools/checkpoint/tensor_reader.hpp>
#include <tools/checkpoint/values.hpp>

namespace libtrain::checkpoint_tool {

namespace {

namespace fs = std::filesystem;

std::string words_for(const TensorInfo& tensor) {
  return text(to_string(tensor.type), " [", join(tensor.shape, ", "), "]");
}

Json type_and_shape(const TensorInfo& tensor) {
  return {{"dtype", to_string(tensor.type)}, {"shape", tensor.shape}};
}

// The indices of a value in a tensor of `values` values; its position in row-major order, if an element is not one
// value.
std::vector<std::uint64_t> indices_of(std::uint64_t position, const TensorInfo& tensor, std::uint64_t values) {
  std::uint64_t elements = 1;
  for (const auto size : tensor.shape) elements *= static_cast<std::uint64_t>(size);
  if (elements != values) return {position};
  std::vector<std::uint64_t> indices(tensor.shape.size());
  for (std::size_t i = indices.size(); i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(tensor.shape[i]);
    indices[i] = position % size;
    position /= size;
  }
  return indices;
}

class Comparison {
 public:
  Comparison(const std::string& first, const std::string& second, Report& report)
      : first_(first), second_(second), report_(report) {
    report_.json = {{"equal", true},
                    {"equal_tensors", 0},
                    {"only_in_first", Json::array()},
                    {"only_in_second", Json::array()},
                    {"mismatched", Json::array()},
                    {"differing", Json::array()},
                    {"differing_files", Json::array()}};
  }

  // `prefix` is put before the names of the tensors.
  void compare_weights(const std::string& first, const std::string& second, const std::string& prefix) {
    TensorReader one{first};
    TensorReader other{second};
    for (std::size_t index = 0; index < one.tensors().size(); ++index) {
      const auto& name = one.tensors()[index].name;
      if (const auto same = other.find(name)) {
        compare_tensors(one, index, other, *same, prefix + name);
      } else {
        add_only_in_first(prefix + name);
      }
    }
    for (const auto& tensor : other.tensors()) {
      if (!one.find(tensor.name)) add_only_in_second(prefix + tensor.name);
    }
  }

  void compare_files(const CheckpointFolder& first, const CheckpointFolder& second) {
    for (const auto& file : first.manifest().files) {
      const auto* const same = second.find(file.name);
      if (same == nullptr) {
        add_only_in_first(file.name);
      } else if (file.name.ends_with(kPartEnding)) {
        compare_weights(first.file(file.name).string(), second.file(file.name).string(), file.name + ": ");
      } else if (file.bytes != same->bytes || file.crc32c != same->crc32c) {
        add("differing_files", file.name, text(file.name, " differs"));
      }
    }
    for (const auto& file : second.manifest().files) {
      if (first.find(file.name) == nullptr) add_only_in_second(file.name);
    }
  }

  ExitCode finish() {
    report_.json["equal_tensors"] = equal_;
    report_.json["equal"] = differences_ == 0;
    report_.line(differences_ == 0 ? text("equal bit for bit, tensors: ", equal_)
                                   : text("differences: ", differences_, ", equal tensors: ", equal_));
    return differences_ == 0 ? ExitCode::success : ExitCode::failure;
  }

 private:
  void add(const char* kind, Json json, const std::string& line) {
    ++differences_;
    report_.json[kind].push_back(std::move(json));
    report_.line(line);
  }

  void add_only_in_first(const std::string& name) { add("only_in_first", name, text(name, " is only in ", first_)); }
  void add_only_in_second(const std::string& name) { add("only_in_second", name, text(name, " is only in ", second_)); }

  void compare_tensors(TensorReader& first, std::size_t index, TensorReader& second, std::size_t same,
                       const std::string& name) {
    const auto& info = first.tensors()[index];
    const auto& other = second.tensors()[same];
    if (info.type != other.type || info.shape != other.shape) {
      return add("mismatched", {{"name", name}, {"first", type_and_shape(info)}, {"second", type_and_shape(other)}},
                 text(name, " is ", words_for(info), " in ", first_, " and ", words_for(other), " in ", second_));
    }
    const auto elements = first.read(index);
    const auto difference = difference_between(info.type, elements, second.read(same));
    if (difference.count == 0) {
      ++equal_;
    } else {
      add_difference(name, info, count_values(info.type, elements.size()), difference);
    }
  }

  void add_difference(const std::string& name, const TensorInfo& info, std::uint64_t values,
                      const Difference& difference) {
    const auto indices = indices_of(difference.first, info, values);
    auto line = text(name, ": ", difference.count, " of ", values, is_scaled(info.type) ? " bytes" : " values",
                     " differ, first at [", join(indices, ", "), "]");
    if (difference.largest_absolute) {
      line += text(", at most by ", *difference.largest_absolute, ", relative ", *difference.largest_relative);
    }
    if (difference.not_finite > 0) line += text(", NaN or infinite: ", difference.not_finite);
    const auto number = [](const auto& value) { return value ? Json(*value) : Json{}; };
    add("differing",
        {{"name", name},
         {"values", values},
         {"differing", difference.count},
         {"first", indices},
         {"not_finite", difference.not_finite},
         {"largest_absolute", number(difference.largest_absolute)},
         {"largest_relative", number(difference.largest_relative)}},
        line);
  }

  std::string first_;
  std::string second_;
  Report& report_;
  std::uint64_t equal_ = 0;
  std::uint64_t differences_ = 0;
};

}  // namespace

ExitCode compare(const std::string& first, const std::string& second, const std::optional<std::string>& part,
                 Report& report) {
  Comparison comparison{first, second, report};
  const auto may_be_checkpoint = [](const auto& path) { return fs::is_directory(path) && !model_weights(path); };
  if (!part && may_be_checkpoint(first) && may_be_checkpoint(second)) {
    const auto one = open_checkpoint(first);
    const auto other = open_checkpoint(second);
    one.verify();
    other.verify();
    comparison.compare_files(one, other);
  } else {
    comparison.compare_weights(weights_path(first, part.value_or(kModelPart)),
                               weights_path(second, part.value_or(kModelPart)), "");
  }
  return comparison.finish();
}

}  // namespace libtrain::checkpoint_tool
