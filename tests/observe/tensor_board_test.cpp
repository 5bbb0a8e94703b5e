#include <libtrain/observe/tensor_board.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/record_bytes.hpp>
#include <tests/support/file_size_limit.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using test::CapturedLog;
using test::message_of;
using test::read_file;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A message of protocol buffers, decoded here from the definition of the format: the fields by number, varints as
// numbers, all others as bytes.
struct Message {
  std::multimap<std::uint64_t, std::string> bytes;
  std::multimap<std::uint64_t, std::uint64_t> numbers;

  Message at(std::uint64_t field) const { return decoded(bytes.find(field)->second); }
  std::string text(std::uint64_t field) const { return bytes.find(field)->second; }
  std::uint64_t number(std::uint64_t field) const { return numbers.find(field)->second; }
  float float_at(std::uint64_t field) const { return as<float>(text(field)); }
  double double_at(std::uint64_t field) const { return as<double>(text(field)); }

  template <typename Number>
  static Number as(const std::string& bytes) {
    Number number{};
    if (bytes.size() != sizeof number) throw std::runtime_error("a number of another size");
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }

  static Message decoded(std::string_view rest) {
    Message message;
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (unsigned shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(rest.at(0));
        rest.remove_prefix(1);
        value |= std::uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) return value;
      }
    };
    const auto take = [&](std::uint64_t count) {
      if (count > rest.size()) throw std::runtime_error("a field that ends beyond its message");
      const std::string taken{rest.substr(0, count)};
      rest.remove_prefix(count);
      return taken;
    };
    while (!rest.empty()) {
      const auto tag = varint();
      switch (tag & 7U) {
        case 0:
          message.numbers.emplace(tag >> 3, varint());
          break;
        case 1:
          message.bytes.emplace(tag >> 3, take(8));
          break;
        case 2:
          message.bytes.emplace(tag >> 3, take(varint()));
          break;
        case 5:
          message.bytes.emplace(tag >> 3, take(4));
          break;
        default:
          throw std::runtime_error("an unknown wire type");
      }
    }
    return message;
  }
};

std::vector<Message> events_in(const fs::path& path) {
  const auto file = read_file(path.string());
  std::vector<Message> events;
  for (std::string_view rest = file; !rest.empty();) {
    const auto length = data::from_little_endian(rest.substr(0, 8));
    const auto record = rest.substr(12, length);
    EXPECT_EQ(record.size(), length);
    EXPECT_EQ(data::framed(record), rest.substr(0, 16 + length));
    events.push_back(Message::decoded(record));
    rest.remove_prefix(16 + length);
  }
  return events;
}

std::vector<double> doubles_in(const std::string& packed) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < packed.size(); i += 8) numbers.push_back(Message::as<double>(packed.substr(i, 8)));
  return numbers;
}

class TensorBoard : public ::testing::Test {
 protected:
  fs::path write(const std::function<void(TensorBoardWriter&)>& body) const {
    TensorBoardWriter writer{folder_.path()};
    body(writer);
    return writer.file();
  }

  // The only value of the only event after the version.
  Message value_of(const std::function<void(TensorBoardWriter&)>& body) {
    const auto events = events_in(write(body));
    EXPECT_EQ(events.size(), 2U);
    step_ = static_cast<std::int64_t>(events.at(1).number(2));
    return events.at(1).at(5).at(1);
  }

  const TemporaryFolder folder_;
  std::int64_t step_ = 0;
};

TEST_F(TensorBoard, BeginsAFileWithTheVersion) {
  const auto file = write([](TensorBoardWriter&) {});
  EXPECT_THAT(file.filename().string(), HasSubstr("events.out.tfevents."));
  const auto events = events_in(file);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].text(3), "brain.Event:2");
}

TEST_F(TensorBoard, GivesEachWriterAFileOfItsOwn) {
  const TensorBoardWriter one{folder_.path()};
  const TensorBoardWriter other{folder_.path()};
  EXPECT_NE(one.file(), other.file());
}

TEST_F(TensorBoard, StoresScalarsWithStepAndWallTime) {
  const double before = static_cast<double>(std::time(nullptr));
  const auto file = write([](TensorBoardWriter& writer) {
    writer.log_scalar("train/loss", 0, 0.1);
    writer.log_scalar("lr", (std::int64_t{1} << 40) + 3, -2.5);
    writer.log_scalar("bad", -1, std::numeric_limits<double>::quiet_NaN());
  });
  const auto events = events_in(file);
  ASSERT_EQ(events.size(), 4U);
  const auto loss = events[1].at(5).at(1);
  EXPECT_EQ(loss.text(1), "train/loss");
  EXPECT_EQ(loss.float_at(2), 0.1F);
  EXPECT_EQ(events[1].number(2), 0U);
  EXPECT_EQ(events[2].number(2), (std::uint64_t{1} << 40) + 3);
  EXPECT_EQ(events[2].at(5).at(1).float_at(2), -2.5F);
  EXPECT_EQ(events[3].number(2), ~std::uint64_t{0});
  EXPECT_TRUE(std::isnan(events[3].at(5).at(1).float_at(2)));
  EXPECT_GE(events[1].double_at(1), before);
  EXPECT_LE(events[1].double_at(1), static_cast<double>(std::time(nullptr)) + 1.0);
}

TEST_F(TensorBoard, NamesMetricsByTheirEvent) {
  const std::vector<Metric> values{{"loss", 0.5}, {"accuracy", 0.25}};
  const auto events = events_in(write([&](TensorBoardWriter& writer) {
    writer.log_metrics("step", 7, values);
    writer.log_metrics("evaluation", 8, {values.data(), 1});
  }));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1].at(5).at(1).text(1), "train/loss");
  EXPECT_EQ(events[2].at(5).at(1).text(1), "train/accuracy");
  EXPECT_EQ(events[3].at(5).at(1).text(1), "evaluation/loss");
}

TEST_F(TensorBoard, StoresImagesAsTheyAreGiven) {
  const auto value = value_of([](TensorBoardWriter& writer) {
    writer.log_image("samples", 3, {.bytes = "\x89PNG", .height = 480, .width = 640, .channels = 4});
  });
  EXPECT_EQ(value.text(1), "samples");
  const auto image = value.at(4);
  EXPECT_EQ(image.number(1), 480U);
  EXPECT_EQ(image.number(2), 640U);
  EXPECT_EQ(image.number(3), 4U);
  EXPECT_EQ(image.text(4), "\x89PNG");
  EXPECT_EQ(step_, 3);
}

TEST_F(TensorBoard, StoresTextForTheTextPluginWithoutSecrets) {
  const auto value =
      value_of([](TensorBoardWriter& writer) { writer.log_text("note", 4, "read https://store/x?sig=C4n4rY"); });
  EXPECT_EQ(value.at(9).at(1).text(1), "text");
  const auto tensor = value.at(8);
  EXPECT_EQ(tensor.number(1), 7U);              // DT_STRING
  EXPECT_EQ(tensor.at(2).at(2).number(1), 1U);  // shape [1]
  EXPECT_EQ(tensor.text(8), "read https://store/x?***");
}

TEST_F(TensorBoard, StoresHistogramsAsHistogramProto) {
  const std::vector<float> values{0.0F, 1.0F, 1.0F, 4.0F};
  const auto value =
      value_of([&](TensorBoardWriter& writer) { writer.log_histogram("weights", 5, Histogram::of(values, 2)); });
  const auto histogram = value.at(5);
  EXPECT_EQ(histogram.double_at(1), 0.0);
  EXPECT_EQ(histogram.double_at(2), 4.0);
  EXPECT_EQ(histogram.double_at(3), 4.0);
  EXPECT_EQ(histogram.double_at(4), 6.0);
  EXPECT_EQ(histogram.double_at(5), 18.0);
  EXPECT_THAT(doubles_in(histogram.text(6)), ElementsAre(2.0, 4.0));
  EXPECT_THAT(doubles_in(histogram.text(7)), ElementsAre(3.0, 1.0));
}

TEST_F(TensorBoard, StoresParametersByTheirTypesAndMasksSecrets) {
  const auto value = value_of([](TensorBoardWriter& writer) {
    writer.log_params({{"lr", "0.1"}, {"model", "resnet18"}, {"amp", "true"}, {"storage_key", "C4n4rY"}});
  });
  EXPECT_EQ(value.text(1), "_hparams_/session_start_info");
  EXPECT_EQ(value.at(9).at(1).text(1), "hparams");
  const auto session = Message::decoded(value.at(9).at(1).text(2)).at(3);
  std::map<std::string, Message> params;
  const auto [first, last] = session.bytes.equal_range(1);
  for (auto entry = first; entry != last; ++entry) {
    const auto decoded = Message::decoded(entry->second);
    params[decoded.text(1)] = decoded.at(2);
  }
  ASSERT_EQ(params.size(), 4U);
  EXPECT_EQ(params["lr"].double_at(2), 0.1);
  EXPECT_EQ(params["model"].text(3), "resnet18");
  EXPECT_EQ(params["amp"].number(4), 1U);
  EXPECT_EQ(params["storage_key"].text(3), "***");
}

TEST_F(TensorBoard, StoresTheStatusAtTheEnd) {
  const auto status_of = [&](RunStatus status) {
    const auto value = value_of([&](TensorBoardWriter& writer) { writer.end(status); });
    EXPECT_EQ(value.text(1), "_hparams_/session_end_info");
    return Message::decoded(value.at(9).at(1).text(2)).at(4).number(1);
  };
  EXPECT_EQ(status_of(RunStatus::finished), 1U);  // STATUS_SUCCESS
  EXPECT_EQ(status_of(RunStatus::failed), 2U);
  EXPECT_EQ(status_of(RunStatus::stopped), 2U);
}

TEST_F(TensorBoard, FlushesInTheBackground) {
  TensorBoardWriter writer{folder_.path(), {.flush_interval = 1ms}};
  writer.log_scalar("loss", 1, 1.0);
  for (int i = 0; i < 10000 && events_in(writer.file()).size() < 2; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(events_in(writer.file()).size(), 2U);
}

TEST_F(TensorBoard, KeepsTheEventsOfAllThreads) {
  const auto events = events_in(write([](TensorBoardWriter& writer) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&writer, thread] {
        for (int i = 0; i < 1000; ++i) writer.log_scalar("loss", 1000 * thread + i, 1.0);
      });
    }
    for (auto& thread : threads) thread.join();
  }));
  std::vector<bool> seen(4000);
  for (std::size_t i = 1; i < events.size(); ++i) seen.at(events[i].number(2)) = true;
  EXPECT_EQ(events.size(), 4001U);
  EXPECT_THAT(seen, ::testing::Each(true));
}

TEST_F(TensorBoard, RefusesAFolderThatCannotBeCreated) {
  test::write_file(folder_ / "file", "");
  const fs::path folder = folder_ / "file/logs";
  EXPECT_THAT(message_of<EnvironmentError>([&] { TensorBoardWriter writer{folder}; }),
              AllOf(HasSubstr(folder.string()), HasSubstr("Not a directory"), HasSubstr("another folder")));
}

TEST_F(TensorBoard, ReportsAFullDiskOnceAndWritesWhenThereIsRoomAgain) {
  CapturedLog log;
  fs::path file;
  {
    TensorBoardWriter writer{folder_.path()};
    file = writer.file();
    writer.log_scalar("loss", 1, 1.0);
    writer.flush();
    {
      const test::FileSizeLimit full{fs::file_size(file) + 10};
      for (int step = 2; step < 5; ++step) {
        writer.log_scalar("loss", step, 1.0);
        writer.flush();
        EXPECT_EQ(events_in(file).size(), 2U);  // and no part of another
      }
    }
    ASSERT_EQ(log.lines().size(), 1U);
    EXPECT_THAT(log.lines()[0], AllOf(HasSubstr(file.string()), HasSubstr("File too large"), HasSubstr("Make room")));
  }
  EXPECT_EQ(events_in(file).size(), 5U);
  EXPECT_EQ(log.lines().size(), 1U);
}

TEST_F(TensorBoard, CountsWhatAFullDiskCost) {
  CapturedLog log;
  std::optional<TensorBoardWriter> writer;
  writer.emplace(folder_.path(), TensorBoardWriter::Options{.pending_bytes = 1000});
  {
    const test::FileSizeLimit full{fs::file_size(writer->file())};
    for (int step = 0; step < 100; ++step) writer->log_scalar("loss", step, 1.0);
    writer->flush();
    writer->log_scalar("loss", 100, 1.0);
    writer.reset();
  }
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[1], HasSubstr("101 events are missing"));
}

TEST_F(TensorBoard, ReportsARemovedFolderOnce) {
  CapturedLog log;
  {
    TensorBoardWriter writer{folder_.path() / "logs"};
    fs::remove_all(folder_.path() / "logs");
    for (int step = 0; step < 3; ++step) {
      writer.log_scalar("loss", step, 1.0);
      writer.flush();
    }
  }
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr("was removed"), HasSubstr("continues without")));
  EXPECT_THAT(log.lines()[1], HasSubstr("3 events are missing"));
}

}  // namespace
}  // namespace libtrain
