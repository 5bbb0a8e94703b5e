#include <tools/inspect/contact_sheet.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/detail/permutation.hpp>
#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/encode_png.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_pipeline.hpp>
#include <libtrain/data/sample_random.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::inspect {

namespace {

constexpr std::uint64_t kColumns = 6;  // the plain picture and five draws, or six plain pictures
constexpr int kGap = 4;                // pixels between two pictures
constexpr int kChannels = 3;
constexpr std::uint8_t kWhite = 255;
constexpr std::uint64_t kMaxLeftOut = 100;

data::ImagePipelineOptions in_bytes(data::ImagePipelineOptions options) {
  options.channels = kChannels;
  options.type = data::PixelType::uint8;
  options.layout = data::Layout::nhwc;
  return options;
}

// Pixels of a row of pictures.
template <typename Integer>
Integer length_of(Integer pictures, int side) {
  return pictures * static_cast<Integer>(side + kGap) - static_cast<Integer>(kGap);
}

// Places pictures row by row from the top left.
class Grid {
 public:
  Grid(int side, std::uint64_t pictures) : side_(side) {
    const auto width = length_of<std::uint64_t>(kColumns, side);
    const auto height = length_of<std::uint64_t>(rows_of(pictures), side);
    if (width * height > data::kMaxPixels) {
      throw UsageError(text("The contact sheet would have ", width, " x ", height, " pixels, expected at most ",
                            data::kMaxPixels, ". Lower --samples or --size."));
    }
    sheet_ = {.width = static_cast<int>(width), .height = static_cast<int>(height), .channels = kChannels};
    sheet_.pixels.assign(sheet_.row_bytes() * static_cast<std::size_t>(height), kWhite);
  }

  void add(const data::Image& picture) {
    const int left = static_cast<int>(count_ % kColumns) * (side_ + kGap) * kChannels;
    const int top = static_cast<int>(count_ / kColumns) * (side_ + kGap);
    for (int y = 0; y < side_; ++y) std::copy_n(picture.row(y), picture.row_bytes(), sheet_.row(top + y) + left);
    ++count_;
  }

  /// Returns the sheet without empty rows. Call it once, after the last picture.
  data::Image take() {
    sheet_.height = length_of(static_cast<int>(rows_of(count_)), side_);
    sheet_.pixels.resize(sheet_.row_bytes() * static_cast<std::size_t>(sheet_.height));
    return std::move(sheet_);
  }

 private:
  static std::uint64_t rows_of(std::uint64_t pictures) { return (pictures + kColumns - 1) / kColumns; }

  int side_;
  std::uint64_t count_ = 0;
  data::Image sheet_;
};

// Makes the pictures of one sample at a time.
class Painter {
 public:
  explicit Painter(const ContactSheetOptions& options)
      : seed_(options.seed),
        draws_(options.augmentation == Augmentation::training ? kColumns - 1 : 0),
        plain_(in_bytes(data::evaluation_images(options.side, options.side * 8 / 7))),
        random_(in_bytes(data::training_images(options.side))) {}

  std::uint64_t pictures_per_sample() const { return 1 + draws_; }

  std::vector<data::Image> paint(const data::ImageSource& source, std::uint64_t index) {
    source.read(index, encoded_);
    const std::string name = source.origin(index).path;
    std::vector<data::Image> pictures;
    pictures.push_back(run(plain_, name, 0, index));
    for (std::uint64_t epoch = 0; epoch < draws_; ++epoch) pictures.push_back(run(random_, name, epoch, index));
    return pictures;
  }

 private:
  data::Image run(data::ImagePipeline& pipeline, const std::string& name, std::uint64_t epoch, std::uint64_t index) {
    const data::ImagePipelineOptions& options = pipeline.options();
    data::Image picture{.width = options.width, .height = options.height, .channels = options.channels};
    picture.pixels.resize(pipeline.bytes());
    data::SampleRandom random(seed_, epoch, index);
    pipeline.run(std::as_bytes(std::span{encoded_.bytes}), name, random,
                 std::as_writable_bytes(std::span{picture.pixels}));
    return picture;
  }

  std::uint64_t seed_;
  std::uint64_t draws_;  // per sample, in addition to the plain picture
  data::ImagePipeline plain_;
  data::ImagePipeline random_;
  data::EncodedImage encoded_;
};

}  // namespace

Json write_contact_sheet(const data::ImageSource& source, const ContactSheetOptions& options) {
  const std::uint64_t wanted = std::min(options.samples, source.size());
  Painter painter(options);
  Grid grid(options.side, wanted * painter.pictures_per_sample());
  const data::detail::Permutation order(source.size(), options.seed, 0);
  std::uint64_t samples = 0;
  std::uint64_t left_out = 0;
  for (std::uint64_t i = 0; i < order.size() && samples < wanted && left_out < kMaxLeftOut; ++i) {
    try {
      for (const auto& picture : painter.paint(source, order(i))) grid.add(picture);
      ++samples;
    } catch (const data::StorageUnavailable&) {
      throw;  // the error is not about the sample
    } catch (const EnvironmentError& error) {
      ++left_out;
      log_warning(text("The contact sheet leaves out a sample. ", error.what()));
    }
  }
  if (samples == 0) {
    throw EnvironmentError(text("'", source.name(), "': expected images for the contact sheet, found ", left_out,
                                " that cannot be decoded. Repair or remove the images that --check decode lists."));
  }
  const data::Image sheet = grid.take();
  data::write_png(sheet, options.path);
  Json facts = Json::object();
  facts["path"] = options.path;
  facts["samples"] = samples;
  facts["left_out"] = left_out;
  facts["width"] = sheet.width;
  facts["height"] = sheet.height;
  return facts;
}

}  // namespace libtrain::inspect
