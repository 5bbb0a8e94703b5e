#include <libtrain/data/loader_state.hpp>

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::HasSubstr;

constexpr auto kLargest = std::numeric_limits<std::uint64_t>::max();

LoaderState some_state() {
  return {.seed = kLargest,
          .epoch = 3,
          .position = (std::uint64_t{1} << 53) + 1,
          .dataset_size = kLargest - 1,
          .order = 5,
          .content = 6,
          .data = "61 samples; class \"a\nb\"",
          .bad_samples = {{1, 2}, {}, {kLargest}}};
}

TEST(LoaderState, IsTheSameAfterItsText) {
  EXPECT_EQ(LoaderState::from_text(some_state().to_text()), some_state());
  EXPECT_EQ(LoaderState::from_text(LoaderState{}.to_text()), LoaderState{});
  EXPECT_EQ(some_state().to_text().find('\n'), std::string::npos);
}

TEST(LoaderState, TextNeedNotBeUtf8) {
  EXPECT_NO_THROW(LoaderState::from_text(LoaderState{.data = "class \xff"}.to_text()));
}

TEST(LoaderState, RefusesAnotherFormat) {
  auto json = nlohmann::json::parse(some_state().to_text());
  ASSERT_EQ(json.at("format"), 1);
  json["format"] = 2;
  EXPECT_THAT(message_of<EnvironmentError>([&] { LoaderState::from_text(json.dump()); }), HasSubstr("has format 2"));
}

TEST(LoaderState, RefusesATextThatIsNoState) {
  const std::string whole = some_state().to_text();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(LoaderState::from_text(whole.substr(0, length)), EnvironmentError) << length;
  }
  EXPECT_THROW(LoaderState::from_text("[]"), EnvironmentError);
  const auto json = nlohmann::json::parse(whole);
  for (const auto& [name, value] : json.items()) {
    auto changed = json;
    changed.erase(name);
    EXPECT_THAT(message_of<EnvironmentError>([&] { LoaderState::from_text(changed.dump()); }), HasSubstr(name));
    for (const char* wrong : {"-1", "0.5", "true", "null", "{}", "[1]", "[[1],[-1]]"}) {
      changed[name] = nlohmann::json::parse(wrong);
      EXPECT_THROW(LoaderState::from_text(changed.dump()), EnvironmentError) << name << " " << wrong;
    }
  }
}

}  // namespace
}  // namespace libtrain::data
