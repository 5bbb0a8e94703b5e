#include <tools/inspect/image_statistics.hpp>

#include <algorithm>
#include <cstddef>
#include <tuple>

#include <libtrain/base/text.hpp>

namespace libtrain::inspect {

namespace {

constexpr std::size_t kShownImages = 5;

// Smaller images are blurred when they are enlarged to the usual 224 pixels.
constexpr int kSmallSide = 32;

}  // namespace

std::string describe_sample(const data::ImageSource& source, std::uint64_t index) {
  const auto origin = source.origin(index);
  return origin.offset == 0 ? origin.path : text(origin.path, ", byte offset ", origin.offset);
}

void ImageStatistics::add(std::uint64_t index, const CheckedImage& image) {
  if (image.stored) {
    ++labels_[image.stored->label];
    contents_.push_back({.hash = image.stored->hash, .index = index});
  }
  if (image.header) add_header(index, *image.header);
  if (image.damaged_places > 0) damaged_.emplace_back(index, image.damaged_places);
}

void ImageStatistics::add_header(std::uint64_t index, const data::ImageHeader& header) {
  widths_.push_back(header.width);
  heights_.push_back(header.height);
  if (std::min(header.width, header.height) < kSmallSide) small_.push_back(index);

  const bool is_png = header.format == data::ImageFormat::png;
  const auto count = [](std::uint64_t& images, bool is_one) {
    if (is_one) ++images;
  };
  count(kinds_.jpeg_baseline, !is_png && !header.progressive);
  count(kinds_.jpeg_progressive, !is_png && header.progressive);
  count(kinds_.png, is_png);
  count(kinds_.png_interlaced, is_png && header.progressive);
  count(kinds_.grey, header.channels <= 2);
  count(kinds_.cmyk, !is_png && header.channels == 4);
  count(kinds_.alpha, is_png && header.channels % 2 == 0);
  count(kinds_.sixteen_bit, header.bit_depth == 16);
  count(kinds_.arithmetic_coding, header.jpeg && header.jpeg->arithmetic);
  count(kinds_.restart_markers, header.jpeg && header.jpeg->restart_interval > 0);
}

void ImageStatistics::describe(const data::ImageSource& source, Check check, Json& facts) const {
  facts["widths"] = spread(widths_);
  facts["heights"] = spread(heights_);
  facts["kinds"] = kinds();
  facts["small_images"] = small_images(source);
  facts["duplicates"] = duplicates(source);
  if (check == Check::decode) facts["damaged_images"] = damaged_images(source);
}

Json ImageStatistics::kinds() const {
  Json json = Json::object();
  json["jpeg_baseline"] = kinds_.jpeg_baseline;
  json["jpeg_progressive"] = kinds_.jpeg_progressive;
  json["png"] = kinds_.png;
  json["png_interlaced"] = kinds_.png_interlaced;
  json["grey"] = kinds_.grey;
  json["cmyk"] = kinds_.cmyk;
  json["alpha"] = kinds_.alpha;
  json["sixteen_bit"] = kinds_.sixteen_bit;
  json["arithmetic_coding"] = kinds_.arithmetic_coding;
  json["restart_markers"] = kinds_.restart_markers;
  return json;
}

Json ImageStatistics::small_images(const data::ImageSource& source) const {
  Json first = Json::array();
  for (const auto index : small_) {
    if (first.size() == kShownImages) break;
    first.push_back(describe_sample(source, index));
  }
  Json json = Json::object();
  json["shorter_side_below"] = kSmallSide;
  json["count"] = small_.size();
  json["first"] = std::move(first);
  return json;
}

Json ImageStatistics::duplicates(const data::ImageSource& source) const {
  const auto pairs = find_duplicates();
  Json first = Json::array();
  for (const auto& [index, original] : pairs) {
    if (first.size() == kShownImages) break;
    Json pair = Json::object();
    pair["sample"] = describe_sample(source, index);
    pair["same_as"] = describe_sample(source, original);
    first.push_back(std::move(pair));
  }
  Json json = Json::object();
  json["count"] = pairs.size();
  json["first"] = std::move(first);
  return json;
}

// JPEGs with damaged places, which libjpeg fills.
Json ImageStatistics::damaged_images(const data::ImageSource& source) const {
  long places = 0;
  Json all = Json::array();
  for (const auto& [index, places_of_one] : damaged_) {
    places += places_of_one;
    Json one = Json::object();
    one["sample"] = describe_sample(source, index);
    one["places"] = places_of_one;
    all.push_back(std::move(one));
  }
  Json json = Json::object();
  json["count"] = damaged_.size();
  json["places"] = places;
  json["all"] = std::move(all);
  return json;
}

// Pairs of an image and the first image with the same bytes.
std::vector<std::pair<std::uint64_t, std::uint64_t>> ImageStatistics::find_duplicates() const {
  std::vector<Content> contents = contents_;
  std::sort(contents.begin(), contents.end(), [](const Content& left, const Content& right) {
    return std::tie(left.hash.high, left.hash.low, left.index) < std::tie(right.hash.high, right.hash.low, right.index);
  });
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs;
  for (std::size_t first = 0, i = 1; i < contents.size(); ++i) {
    if (contents[i].hash == contents[first].hash) {
      pairs.emplace_back(contents[i].index, contents[first].index);
    } else {
      first = i;
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace libtrain::inspect
