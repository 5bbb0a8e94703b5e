#pragma once

#include <cstdint>
#include <string>

#include <libtrain/data/formats/tar.hpp>

#include <tools/pack/shard_writer.hpp>

namespace libtrain::pack {

/// WebDataset's layout: "00000017.jpg" or "00000017.png", then "00000017.cls" with the label in decimal digits. The
/// number is the sample's, so that no two shards share a key.
class TarShardWriter final : public ShardWriter {
 public:
  explicit TarShardWriter(const std::string& path) : tar_(path) {}

  void add(const LabelledSample& sample) override;
  void finish() override { tar_.finish(); }
  std::uint64_t bytes() const override { return tar_.bytes(); }

 private:
  data::TarWriter tar_;
};

}  // namespace libtrain::pack
