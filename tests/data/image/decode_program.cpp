// libtrain's side of pillow_decode_test.py.
//
//   decode_program --write FOLDER    writes the images of jpeg_writer.hpp and png_writer.hpp, and prints a line for
//   each:
//                                    the file's name, a tab, what it is
//   decode_program --decode JOBS     decodes; each line of the file JOBS has, separated by tabs: channels, scale
//                                    denominator, the crop's x, y, width and height (width 0: all), input, output
//
// An output file has a line "MODE WIDTH HEIGHT" with Pillow's name of the mode, then the pixels.

#include <cstddef>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/detail/restart.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/png_writer.hpp>

namespace data = libtrain::data;

namespace {

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + path);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

void write_file(const std::string& path, const std::string& head, const void* bytes, std::size_t size) {
  std::ofstream stream(path, std::ios::binary);
  stream << head;
  stream.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  if (!stream.flush()) throw std::runtime_error("cannot write " + path);
}

void write_picture(const std::string& folder, const std::string& name, const std::string& what,
                   const std::vector<std::byte>& file) {
  write_file(folder + "/" + name, "", file.data(), file.size());
  std::cout << name << '\t' << what << '\n';
}

void write_pictures(const std::string& folder) {
  int number = 0;
  for (const auto& recipe : libtrain::test::all_recipes()) {
    const auto file = libtrain::test::write_jpeg(recipe);
    write_picture(folder, libtrain::text("ours_", ++number, ".jpg"), recipe.name, file);
    const auto marked = data::detail::add_restart_markers(file);
    if (!marked) continue;
    write_picture(folder, libtrain::text("ours_", number, "_marked.jpg"), recipe.name + ", restart markers added",
                  *marked);
  }
  for (const auto& recipe : libtrain::test::all_png_recipes()) {
    write_picture(folder, libtrain::text("ours_", ++number, ".png"), recipe.name,
                  libtrain::test::write_png(recipe).file);
  }
}

void decode_all(const std::string& jobs) {
  std::ifstream stream(jobs);
  if (!stream) throw std::runtime_error("cannot read " + jobs);
  data::ImageDecoder decoder;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream fields(line);
    data::DecodeOptions options;
    data::Crop crop;
    std::string output;
    fields >> options.channels >> options.scale_denominator >> crop.x >> crop.y >> crop.width >> crop.height >> std::ws;
    std::getline(fields, options.name, '\t');
    std::getline(fields, output);
    if (!fields || output.empty()) throw std::runtime_error("not a job: " + line);
    if (crop.width > 0) options.crop = crop;
    const data::Image image = decoder.decode(read_file(options.name), options);
    write_file(output, libtrain::text(image.channels == 1 ? "L" : "RGB", ' ', image.width, ' ', image.height, '\n'),
               image.pixels.data(), image.pixels.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  try {
    if (words.size() == 3 && words[1] == "--write") {
      write_pictures(words[2]);
    } else if (words.size() == 3 && words[1] == "--decode") {
      decode_all(words[2]);
    } else {
      std::cerr << "usage: decode_program --write FOLDER | --decode JOBS\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
  return 0;
}
