#pragma once

#include <cstdint>
#include <string>

#include <libtrain/data/formats/tf_record.hpp>

#include <tools/pack/shard_writer.hpp>

namespace libtrain::pack {

/// A tf.train.Example a record, whose features are named as in TensorFlow's ImageNet files: image/encoded, image/format
/// ("JPEG" or "PNG"), image/class/label (from 0), image/class/text, image/filename (the path below the folder),
/// image/height and image/width.
class TfRecordShardWriter final : public ShardWriter {
 public:
  explicit TfRecordShardWriter(const std::string& path) : records_(path) {}

  void add(const LabelledSample& sample) override;
  void finish() override { records_.finish(); }
  std::uint64_t bytes() const override { return records_.bytes(); }

 private:
  data::TfRecordWriter records_;
};

}  // namespace libtrain::pack
