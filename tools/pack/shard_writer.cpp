#include <tools/pack/shard_writer.hpp>

#include <libtrain/data/formats/detail/tf_example.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/formats/tf_record.hpp>

namespace libtrain::pack {

namespace {

constexpr int kKeyDigits = 8;
constexpr std::uint64_t kTarBlock = 512;
constexpr std::uint64_t kFeatureBytes = 300;  // names and values of all features but the image, and the record's frame

// WebDataset's layout: "00000017.jpg" or "00000017.png", then "00000017.cls" with the label in decimal digits. The
// number is the sample's, so that no two shards share a key.
class TarShardWriter final : public ShardWriter {
 public:
  explicit TarShardWriter(const std::string& path) : tar_(path) {}

  void add(const LabelledSample& sample) override {
    const std::string key = zero_padded(sample.number, kKeyDigits);
    tar_.add(key + (sample.image.format == data::ImageFormat::png ? ".png" : ".jpg"), sample.image.bytes);
    tar_.add(key + ".cls", std::to_string(sample.label));
  }

  void finish() override { tar_.finish(); }
  std::uint64_t bytes() const override { return tar_.bytes(); }

 private:
  data::TarWriter tar_;
};

// Labels are elsewhere, and refer to images by their paths.
class ImageArchiveWriter final : public ShardWriter {
 public:
  explicit ImageArchiveWriter(const std::string& path) : tar_(path) {}

  void add(const LabelledSample& sample) override { tar_.add(sample.path, sample.image.bytes); }
  void finish() override { tar_.finish(); }
  std::uint64_t bytes() const override { return tar_.bytes(); }

 private:
  data::TarWriter tar_;
};

// One tf.train.Example per record, with the feature names of TensorFlow's ImageNet files: image/encoded, image/format
// ("JPEG" or "PNG"), image/class/label (from 0), image/class/text, image/filename (the path below the folder),
// image/height and image/width.
class TfRecordShardWriter final : public ShardWriter {
 public:
  explicit TfRecordShardWriter(const std::string& path) : records_(path) {}

  void add(const LabelledSample& sample) override {
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

  void finish() override { records_.finish(); }
  std::uint64_t bytes() const override { return records_.bytes(); }

 private:
  data::TfRecordWriter records_;
};

}  // namespace

std::unique_ptr<ShardWriter> create_shard(ShardKind kind, const std::string& path) {
  if (kind == ShardKind::tar) return std::make_unique<TarShardWriter>(path);
  return std::make_unique<TfRecordShardWriter>(path);
}

std::unique_ptr<ShardWriter> create_image_archive(const std::string& path) {
  return std::make_unique<ImageArchiveWriter>(path);
}

std::uint64_t stored_bytes(ShardKind kind, std::uint64_t image_bytes) {
  if (kind == ShardKind::tf_record) return image_bytes + kFeatureBytes;
  // Two headers, the label and the image, in whole blocks.
  return (image_bytes + kTarBlock - 1) / kTarBlock * kTarBlock + 3 * kTarBlock;
}

}  // namespace libtrain::pack
