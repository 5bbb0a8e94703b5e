// A tf.train.Example: every byte sequence is parsed or refused by an EnvironmentError, and what was parsed survives
// being written and parsed again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/detail/tf_example.hpp>

#include <tests/data/formats/shard_samples.hpp>
#include <tests/fuzz/target.hpp>

std::vector<std::string> fuzz_seeds() {
  return {libtrain::data::sample_example(3)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace libtrain::data;
  try {
    const std::string_view record(reinterpret_cast<const char*>(data), size);
    const std::string once = detail::serialize_tf_example(detail::parse_tf_example(record, "record"));
    if (detail::serialize_tf_example(detail::parse_tf_example(once, "record")) != once) std::abort();
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
  return 0;
}
