#include <libtrain/observe/detail/tensor_board_events.hpp>

#include <bit>
#include <limits>
#include <vector>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/detail/protobuf_wire.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/environment.hpp>

namespace libtrain::detail {

namespace {

// Field numbers of the messages, by message (tensorflow/core/util/event.proto, framework/{summary,tensor}.proto, and
// tensorboard/plugins/hparams/plugin_data.proto).
namespace event {
constexpr std::uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSourceMetadata = 10;
constexpr std::uint32_t kWriter = 1;  // of SourceMetadata
}  // namespace event
namespace value {
constexpr std::uint32_t kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9;
constexpr std::uint32_t kOfSummary = 1;
}  // namespace value
namespace metadata {
constexpr std::uint32_t kPlugin = 1, kPluginName = 1, kPluginContent = 2;
}
namespace image_field {
constexpr std::uint32_t kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4;
}
namespace histogram_field {
constexpr std::uint32_t kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kLimits = 6, kCounts = 7;
}
namespace tensor {
constexpr std::uint32_t kType = 1, kShape = 2, kStrings = 8;
constexpr std::uint32_t kDimension = 2, kSize = 1;  // of the shape
constexpr std::uint64_t kString = 7;                // DataType
}  // namespace tensor
namespace hparams {
constexpr std::uint32_t kSessionStart = 3, kSessionEnd = 4;
constexpr std::uint32_t kParams = 1, kStartTime = 5;        // of SessionStartInfo
constexpr std::uint32_t kKey = 1, kValue = 2;               // of a map's entry
constexpr std::uint32_t kNumber = 2, kText = 3, kBool = 4;  // of google.protobuf.Value
constexpr std::uint32_t kStatus = 1, kEndTime = 2;          // of SessionEndInfo
constexpr std::uint64_t kSuccess = 1, kFailure = 2;         // Status
}  // namespace hparams

std::string summary_of(const WireWriter& only_value) {
  WireWriter summary;
  summary.bytes(value::kOfSummary, only_value.message());
  return summary.take();
}

WireWriter metadata_of(std::string_view plugin_name, std::string_view content) {
  WireWriter plugin;
  plugin.bytes(metadata::kPluginName, plugin_name);
  if (!content.empty()) plugin.bytes(metadata::kPluginContent, content);
  WireWriter message;
  message.bytes(metadata::kPlugin, plugin.message());
  return message;
}

std::string packed(const std::vector<double>& numbers) {
  std::string bytes;
  for (const double number : numbers) append_little_endian(bytes, std::bit_cast<std::uint64_t>(number));
  return bytes;
}

std::string param_value(std::string_view value) {
  constexpr double kMost = std::numeric_limits<double>::max();
  WireWriter message;
  if (value == "true" || value == "false") {
    message.varint(hparams::kBool, value == "true" ? 1 : 0);
  } else if (const auto number = parse_decimal<double>(value, -kMost, kMost)) {
    message.fixed64(hparams::kNumber, *number);
  } else {
    message.bytes(hparams::kText, value);
  }
  return message.take();
}

std::string session_summary(std::string_view tag, std::uint32_t field, const WireWriter& session) {
  WireWriter data;
  data.bytes(field, session.message());
  WireWriter message;
  message.bytes(value::kTag, tag);
  message.bytes(value::kMetadata, metadata_of("hparams", data.message()).message());
  return summary_of(message);
}

std::string framed(const WireWriter& message) {
  std::string record;
  append_little_endian<std::uint64_t>(record, message.message().size());
  append_little_endian(record, masked_crc32c(record));
  record += message.message();
  append_little_endian(record, masked_crc32c(message.message()));
  return record;
}

}  // namespace

std::string scalar_summary(std::string_view tag, double number) {
  WireWriter message;
  message.bytes(value::kTag, tag);
  message.fixed32(value::kSimpleValue, static_cast<float>(number));
  return summary_of(message);
}

std::string image_summary(std::string_view tag, const EncodedImage& image) {
  WireWriter content;
  content.varint(image_field::kHeight, static_cast<std::uint64_t>(image.height));
  content.varint(image_field::kWidth, static_cast<std::uint64_t>(image.width));
  content.varint(image_field::kColorspace, static_cast<std::uint64_t>(image.channels));
  content.bytes(image_field::kEncoded, image.bytes);
  WireWriter message;
  message.bytes(value::kTag, tag);
  message.bytes(value::kImage, content.message());
  return summary_of(message);
}

std::string text_summary(std::string_view tag, std::string_view text) {
  WireWriter dimension;
  dimension.varint(tensor::kSize, 1);
  WireWriter shape;
  shape.bytes(tensor::kDimension, dimension.message());
  WireWriter content;
  content.varint(tensor::kType, tensor::kString);
  content.bytes(tensor::kShape, shape.message());
  content.bytes(tensor::kStrings, redact(text));
  WireWriter message;
  message.bytes(value::kTag, tag);
  message.bytes(value::kTensor, content.message());
  message.bytes(value::kMetadata, metadata_of("text", {}).message());
  return summary_of(message);
}

std::string histogram_summary(std::string_view tag, const Histogram& histogram) {
  WireWriter content;
  content.fixed64(histogram_field::kMin, histogram.minimum);
  content.fixed64(histogram_field::kMax, histogram.maximum);
  content.fixed64(histogram_field::kNum, histogram.count);
  content.fixed64(histogram_field::kSum, histogram.sum);
  content.fixed64(histogram_field::kSumSquares, histogram.sum_of_squares);
  content.bytes(histogram_field::kLimits, packed(histogram.limits));
  content.bytes(histogram_field::kCounts, packed(histogram.counts));
  WireWriter message;
  message.bytes(value::kTag, tag);
  message.bytes(value::kHistogram, content.message());
  return summary_of(message);
}

std::string session_start_summary(const NamedValues& params, double time_s) {
  WireWriter session;
  for (const auto& [name, param] : params) {
    WireWriter entry;
    entry.bytes(hparams::kKey, name);
    entry.bytes(hparams::kValue, param_value(redact_value(name, param)));
    session.bytes(hparams::kParams, entry.message());
  }
  session.fixed64(hparams::kStartTime, time_s);
  return session_summary("_hparams_/session_start_info", hparams::kSessionStart, session);
}

std::string session_end_summary(RunStatus status, double time_s) {
  WireWriter session;
  session.varint(hparams::kStatus, status == RunStatus::finished ? hparams::kSuccess : hparams::kFailure);
  session.fixed64(hparams::kEndTime, time_s);
  return session_summary("_hparams_/session_end_info", hparams::kSessionEnd, session);
}

std::string event_record(std::int64_t step, double time_s, std::string_view summary) {
  WireWriter message;
  message.fixed64(event::kWallTime, time_s);
  message.varint(event::kStep, static_cast<std::uint64_t>(step));
  message.bytes(event::kSummary, summary);
  return framed(message);
}

std::string version_record(double time_s) {
  WireWriter source;
  source.bytes(event::kWriter, "libtrain");
  WireWriter message;
  message.fixed64(event::kWallTime, time_s);
  message.bytes(event::kFileVersion, "brain.Event:2");
  message.bytes(event::kSourceMetadata, source.message());
  return framed(message);
}

}  // namespace libtrain::detail
