#include <tools/pack/tar_shard_writer.hpp>

namespace libtrain::pack {

namespace {

constexpr int kKeyDigits = 8;

}  // namespace

void TarShardWriter::add(const LabelledSample& sample) {
  const std::string key = zero_padded(sample.number, kKeyDigits);
  tar_.add(key + (sample.image.format == data::ImageFormat::png ? ".png" : ".jpg"), sample.image.bytes);
  tar_.add(key + ".cls", std::to_string(sample.label));
}

}  // namespace libtrain::pack
