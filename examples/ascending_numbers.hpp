#pragma once

#include <charconv>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/train/context.hpp>

/// The numbers of an option such as "30,60,80": whole, from 1 on, in ascending order. Throws UsageError for others.
inline std::vector<std::int64_t> ascending_numbers(const libtrain::Context& context, std::string_view name) {
  std::vector<std::int64_t> all;
  std::istringstream list(context.option(name));
  for (std::string word; std::getline(list, word, ',');) {
    std::int64_t number = 0;
    const auto* const end = word.data() + word.size();
    if (std::from_chars(word.data(), end, number).ptr != end || number < 1 || (!all.empty() && number <= all.back())) {
      throw libtrain::UsageError("Option --" + std::string(name) + " is '" + list.str() +
                                 "', which is not a list of numbers in ascending order. Write it as 30,60,80.");
    }
    all.push_back(number);
  }
  return all;
}
