#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <libtrain/libtrain.hpp>

/// Images of noise with labels, bytes or normalised values, that cost nothing to read: for measuring everything but the
/// data.
class SyntheticImages : public libtrain::data::InPlaceDataset {
 public:
  SyntheticImages(std::uint64_t size, std::int64_t classes, const libtrain::data::ImageShape& shape)
      : size_(size),
        classes_(classes),
        shape_(shape),
        pool_(shape.type == torch::kByte ? torch::randint(256, {kImages, shape.elements()}, torch::kByte)
                                         : torch::randn({kImages, shape.elements()}).to(shape.type)),
        image_bytes_(pool_.nbytes() / static_cast<std::size_t>(kImages)) {}

  std::uint64_t size() const override { return size_; }
  std::int64_t class_count() const override { return classes_; }
  libtrain::data::ImageShape image_shape() const override { return shape_; }

  std::int64_t read(std::uint64_t index, libtrain::data::SampleRandom& /*random*/, void* image) const override {
    const auto* const first = static_cast<const std::byte*>(pool_.const_data_ptr());
    std::memcpy(image, first + index % static_cast<std::uint64_t>(kImages) * image_bytes_, image_bytes_);
    return static_cast<std::int64_t>(index % static_cast<std::uint64_t>(classes_));
  }

  libtrain::data::SampleOrigin origin(std::uint64_t index) const override {
    return {.path = "synthetic image", .offset = index};
  }
  libtrain::data::DatasetIdentity identity() const override {
    return {libtrain::text("synthetic images: ", size_, " of ", classes_, " classes")};
  }

 private:
  static constexpr std::int64_t kImages = 16;

  std::uint64_t size_;
  std::int64_t classes_;
  libtrain::data::ImageShape shape_;
  torch::Tensor pool_;
  std::size_t image_bytes_;
};
