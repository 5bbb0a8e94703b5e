#include <tools/pack/tf_record_shard_writer.hpp>

#include <string_view>

#include <libtrain/data/formats/detail/tf_example.hpp>

namespace libtrain::pack {

void TfRecordShardWriter::add(const LabelledSample& sample) {
  const EncodedSample& image = sample.image;
  const std::string_view format = image.format == data::ImageFormat::png ? "PNG" : "JPEG";
  data::detail::TfExample example;
  example.features["image/encoded"] = data::detail::TfBytesList{image.bytes};
  example.features["image/format"] = data::detail::TfBytesList{format};
  example.features["image/class/label"] = data::detail::TfInt64List{sample.label};
  example.features["image/class/text"] = data::detail::TfBytesList{sample.class_name};
  example.features["image/filename"] = data::detail::TfBytesList{sample.path};
  example.features["image/height"] = data::detail::TfInt64List{image.height};
  example.features["image/width"] = data::detail::TfInt64List{image.width};
  records_.write(data::detail::serialize_tf_example(example));
}

}  // namespace libtrain::pack
