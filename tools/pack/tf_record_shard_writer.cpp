#include <tools/pack/tf_record_shard_writer.hpp>

#include <string_view>

#include <libtrain/data/formats/detail/tf_example.hpp>

namespace libtrain::pack {

void TfRecordShardWriter::add(const LabelledSample& sample) {
  const EncodedSample& image = sample.image;
  const std::string_view format = image.format == data::ImageFormat::png ? "PNG" : "JPEG";
  data::TfExample example;
  example.features["image/encoded"] = data::TfBytesList{image.bytes};
  example.features["image/format"] = data::TfBytesList{format};
  example.features["image/class/label"] = data::TfInt64List{sample.label};
  example.features["image/class/text"] = data::TfBytesList{sample.class_name};
  example.features["image/filename"] = data::TfBytesList{sample.path};
  example.features["image/height"] = data::TfInt64List{image.height};
  example.features["image/width"] = data::TfInt64List{image.width};
  records_.write(data::serialize_tf_example(example));
}

}  // namespace libtrain::pack
