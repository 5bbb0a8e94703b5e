// libtrain's side of pillow_resize_test.py: carries out the commands of a file, one a line, words apart by spaces:
//
//   resize SOURCE TARGET CHANNELS WIDTH HEIGHT LEFT TOP RIGHT BOTTOM RESIZED_WIDTH RESIZED_HEIGHT X Y WIDTH HEIGHT
//   change NAME AMOUNT SOURCE TARGET CHANNELS WIDTH HEIGHT
//   draw_crops TARGET COUNT WIDTH HEIGHT
//   draw_jitters TARGET COUNT EXTENT_OF_BRIGHTNESS ..._CONTRAST ..._SATURATION ..._HUE
//   draw_augments TARGET COUNT
//
// Images are raw bytes, with contiguous rows and interleaved channels; draws are written as text, one per line.

#include <cstddef>
#include <exception>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/affine.hpp>
#include <libtrain/data/image/augment.hpp>
#include <libtrain/data/image/detail/color.hpp>
#include <libtrain/data/image/geometry.hpp>
#include <libtrain/data/image/resize.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

struct Command {
  std::istringstream words;

  template <typename T>
  T next() {
    T value{};
    if (!(words >> value)) throw lt::UsageError(lt::text("a word is missing or wrong in '", words.str(), "'"));
    return value;
  }
};

data::Image read_picture(const std::string& path, Command& command) {
  data::Image image;
  image.channels = command.next<int>();
  image.width = command.next<int>();
  image.height = command.next<int>();
  image.pixels.resize(image.row_bytes() * static_cast<std::size_t>(image.height));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
  if (!file) throw lt::EnvironmentError(lt::text("cannot read ", image.pixels.size(), " bytes from '", path, "'"));
  return image;
}

void write_picture(const std::string& path, const data::Image& image) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
  if (!file.flush()) throw lt::EnvironmentError(lt::text("cannot write '", path, "'"));
}

void resize(Command& command) {
  static data::Resizer resizer;  // one for all, as in a worker
  const auto source_path = command.next<std::string>();
  const auto target_path = command.next<std::string>();
  const data::Image source = read_picture(source_path, command);
  data::ResizeOptions options;
  data::ResizeBox box;
  box.left = command.next<float>();
  box.top = command.next<float>();
  box.right = command.next<float>();
  box.bottom = command.next<float>();
  options.box = box;
  options.width = command.next<int>();
  options.height = command.next<int>();
  options.x = command.next<int>();
  options.y = command.next<int>();
  data::Image target;
  target.channels = source.channels;
  target.width = command.next<int>();
  target.height = command.next<int>();
  target.pixels.resize(target.row_bytes() * static_cast<std::size_t>(target.height));
  resizer.resize(data::view(source), options,
                 {.pixels = target.pixels.data(),
                  .width = target.width,
                  .height = target.height,
                  .channels = target.channels,
                  .type = data::PixelType::uint8,
                  .layout = data::Layout::nhwc});
  write_picture(target_path, target);
}

void change(Command& command) {
  using data::Image;
  static const std::map<std::string, std::function<void(Image&, double)>> changes{
      {"brightness", data::detail::adjust_brightness},
      {"contrast", data::detail::adjust_contrast},
      {"saturation", data::detail::adjust_saturation},
      {"sharpness", data::detail::adjust_sharpness},
      {"hue", data::detail::adjust_hue},
      {"solarize", data::detail::solarize},
      {"posterize", [](Image& image, double amount) { data::detail::posterize(image, static_cast<int>(amount)); }},
      {"autocontrast", [](Image& image, double) { data::detail::autocontrast(image); }},
      {"equalize", [](Image& image, double) { data::detail::equalize(image); }},
      {"shear_x", [](Image& image, double amount) { data::affine(image, data::shear_x_matrix(amount)); }},
      {"shear_y", [](Image& image, double amount) { data::affine(image, data::shear_y_matrix(amount)); }},
      {"translate_x",
       [](Image& image, double amount) { data::affine(image, data::translation_matrix(static_cast<int>(amount), 0)); }},
      {"translate_y",
       [](Image& image, double amount) { data::affine(image, data::translation_matrix(0, static_cast<int>(amount))); }},
      {"rotate", [](Image& image, double amount) {
         data::affine(image, data::rotation_matrix(amount, image.width, image.height));
       }}};
  const auto name = command.next<std::string>();
  const auto amount = command.next<double>();
  const auto source_path = command.next<std::string>();
  const auto target_path = command.next<std::string>();
  data::Image image = read_picture(source_path, command);
  changes.at(name)(image, amount);
  write_picture(target_path, image);
}

// Each line has the random numbers of another sample, as in training.
void write_draws(Command& command, const std::function<void(data::SampleRandom&, std::ostream&)>& draw,
                 const std::string& path, int count) {
  std::ofstream file(path);
  file << std::setprecision(17);
  for (int i = 0; i < count; ++i) {
    data::SampleRandom random(17, 1, static_cast<std::uint64_t>(i));
    draw(random, file);
    file << '\n';
  }
  if (!file.flush()) throw lt::EnvironmentError(lt::text("cannot write the draws of '", command.words.str(), "'"));
}

void draw_crops(Command& command) {
  const auto path = command.next<std::string>();
  const int count = command.next<int>();
  const int width = command.next<int>();
  const int height = command.next<int>();
  const auto draw = [&](data::SampleRandom& random, std::ostream& line) {
    const data::Crop crop = data::random_resized_crop(width, height, {}, random);
    line << crop.x << ' ' << crop.y << ' ' << crop.width << ' ' << crop.height;
  };
  write_draws(command, draw, path, count);
}

void draw_jitters(Command& command) {
  const auto path = command.next<std::string>();
  const int count = command.next<int>();
  data::ColorJitterOptions options;
  options.brightness = command.next<double>();
  options.contrast = command.next<double>();
  options.saturation = command.next<double>();
  options.hue = command.next<double>();
  const auto draw = [&](data::SampleRandom& random, std::ostream& line) {
    const data::ColorJitter jitter = data::draw_color_jitter(options, random);
    for (const auto step : jitter.order) line << static_cast<int>(step) << ' ';
    line << jitter.brightness.value() << ' ' << jitter.contrast.value() << ' ' << jitter.saturation.value() << ' '
         << jitter.hue.value();
  };
  write_draws(command, draw, path, count);
}

void draw_augments(Command& command) {
  const auto path = command.next<std::string>();
  const int count = command.next<int>();
  const auto draw = [&](data::SampleRandom& random, std::ostream& line) {
    const data::AugmentStep augment = data::draw_trivial_augment(random);
    line << static_cast<int>(augment.operation) << ' ' << augment.magnitude;
  };
  write_draws(command, draw, path, count);
}

void carry_out(const std::string& line) {
  static const std::map<std::string, void (*)(Command&)> commands{{"resize", resize},
                                                                  {"change", change},
                                                                  {"draw_crops", draw_crops},
                                                                  {"draw_jitters", draw_jitters},
                                                                  {"draw_augments", draw_augments}};
  Command command{std::istringstream(line)};
  commands.at(command.next<std::string>())(command);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: resize_program COMMANDS\n";
    return 2;
  }
  try {
    std::ifstream file(argv[1]);
    if (!file) throw lt::EnvironmentError(lt::text("cannot read '", argv[1], "'"));
    for (std::string line; std::getline(file, line);) carry_out(line);
  } catch (const std::exception& error) {
    std::cerr << "resize_program: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
