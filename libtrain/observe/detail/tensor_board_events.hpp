#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/observe/tracker.hpp>

namespace libtrain::detail {

/// Messages of TensorBoard's protocol buffers, encoded. The functions that end in `summary` make a tensorflow.Summary,
/// the content of an event; `tag` is the name that TensorBoard shows.
std::string scalar_summary(std::string_view tag, double value);
std::string image_summary(std::string_view tag, const EncodedImage& image);
std::string text_summary(std::string_view tag, std::string_view text);
std::string histogram_summary(std::string_view tag, const Histogram& histogram);

/// Begins a session of the plugin "hparams". Values that are decimal numbers, `true` and `false` get those types.
std::string session_start_summary(const NamedValues& params, double time_s);
std::string session_end_summary(RunStatus status, double time_s);

/// A tensorflow.Event as a record of an event file; `time_s` is in seconds since the epoch, UTC.
std::string event_record(std::int64_t step, double time_s, std::string_view summary);

/// The first record of every event file.
std::string version_record(double time_s);

}  // namespace libtrain::detail
