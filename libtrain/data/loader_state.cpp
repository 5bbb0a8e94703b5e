#include <libtrain/data/loader_state.hpp>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kFormat = 1;

[[noreturn]] void fail(const std::string& reason) {
  throw EnvironmentError(
      text("The loader's state was not written by LoaderState::to_text(): ", reason, ". Use an older checkpoint."));
}

// nlohmann silently converts negative numbers, fractions and booleans to unsigned numbers.
std::uint64_t number_of(const Json& json, const char* name) {
  if (!json.is_number_unsigned()) fail(text("'", name, "' is ", json.dump(), ", expected a whole number of 0 or more"));
  return json.get<std::uint64_t>();
}

std::uint64_t number_in(const Json& json, const char* name) {
  if (!json.contains(name)) fail(text("it has no '", name, "'"));
  return number_of(json.at(name), name);
}

std::vector<std::vector<std::uint64_t>> bad_samples_in(const Json& json) {
  constexpr auto kName = "bad_samples";
  std::vector<std::vector<std::uint64_t>> ranks;
  if (!json.contains(kName) || !json.at(kName).is_array()) fail(text("it has no list '", kName, "'"));
  for (const Json& rank : json.at(kName)) {
    if (!rank.is_array()) fail(text("'", kName, "' holds ", rank.dump(), ", expected a list of numbers for each rank"));
    auto& numbers = ranks.emplace_back();
    for (const Json& number : rank) numbers.push_back(number_of(number, kName));
  }
  return ranks;
}

}  // namespace

std::string LoaderState::to_text() const {
  const Json json{{"format", kFormat},
                  {"seed", seed},
                  {"epoch", epoch},
                  {"position", position},
                  {"dataset_size", dataset_size},
                  {"order", order},
                  {"content", content},
                  {"data", data},
                  {"bad_samples", bad_samples}};
  // Names of classes and files may not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

LoaderState LoaderState::from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail("it is not a JSON object");
  if (const auto format = number_in(json, "format"); format != kFormat) {
    throw EnvironmentError(libtrain::text("The loader's state has format ", format, ", but this libtrain reads format ",
                                          kFormat, ". Resume with the libtrain version that wrote it."));
  }
  if (!json.contains("data") || !json.at("data").is_string()) fail("it has no text 'data'");
  return {.seed = number_in(json, "seed"),
          .epoch = number_in(json, "epoch"),
          .position = number_in(json, "position"),
          .dataset_size = number_in(json, "dataset_size"),
          .order = number_in(json, "order"),
          .content = number_in(json, "content"),
          .data = json.at("data").get<std::string>(),
          .bad_samples = bad_samples_in(json)};
}

}  // namespace libtrain::data
