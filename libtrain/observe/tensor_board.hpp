#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <libtrain/observe/tracker.hpp>

namespace libtrain {

/// Writes an event file for TensorBoard, `events.out.tfevents.<seconds>.<host>.<process>.<number>`: a TFRecord file of
/// tensorflow.Event messages (tensorflow/core/util/event.proto, framework/summary.proto). Each run needs a folder of
/// its own; TensorBoard shows all folders under its --logdir as runs, and a resumed run adds a file to its folder.
///
/// Scalars are stored as float32 (`simple_value`), histograms as HistogramProto, as torch.utils.tensorboard does;
/// TensorBoard converts both when it reads them. Text belongs to the plugin "text", parameters and the status at the
/// end to the plugin "hparams", whose metrics are the run's scalars (its page fails for steps
/// beyond 2^31 - 1).
///
/// Calls encode the event into memory, about 1 microsecond for a scalar; a thread writes every few seconds. If the disk
/// is full or the file was removed, one warning says so and the training continues: a full disk is tried again at every
/// flush, with up to `pending_bytes` of events kept until then. Events that do not fit are lost, and counted at the
/// end. Any thread may call.
class TensorBoardWriter final : public Tracker {
 public:
  struct Options {
    std::chrono::milliseconds flush_interval{5000};
    std::size_t pending_bytes = 64 << 20;
    std::chrono::milliseconds end_timeout{10000};  ///< how long the end waits for a disk that does not answer
  };

  /// Creates `folder`, if it does not exist, and the file. Throws EnvironmentError with the path and the system's
  /// reason: a run that could show nothing should say so at its start.
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  TensorBoardWriter(const std::filesystem::path& folder, Options options);

  /// Writes what is left, waiting at most `end_timeout`, and warns about lost events.
  ~TensorBoardWriter() override;

  void log_scalar(std::string_view tag, std::int64_t step, double value);

  void log_params(const NamedValues& values) override;
  void log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) override;
  void log_text(std::string_view tag, std::int64_t step, std::string_view text) override;
  void log_image(std::string_view tag, std::int64_t step, const EncodedImage& image) override;
  void log_histogram(std::string_view tag, std::int64_t step, const Histogram& histogram) override;
  void end(RunStatus status) override;

  /// Waits until it was tried to write all events so far, at most `end_timeout`; a full disk is tried again later.
  void flush();

  const std::filesystem::path& file() const { return file_; }

 private:
  struct Shared;

  void add(std::int64_t step, std::string_view summary);

  std::filesystem::path file_;
  std::chrono::milliseconds end_timeout_;
  std::shared_ptr<Shared> shared_;  // with the thread, which outlives this object if the disk hangs
};

}  // namespace libtrain
