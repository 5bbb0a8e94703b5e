#include <libtrain/data/image/detail/libjpeg.hpp>

#include <cstdlib>

#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_options.hpp>

namespace libtrain::data::detail {

namespace {

// Every scan of a progressive file takes the time of the whole image, however few bytes it has. Typical files have
// about ten scans; libjpeg-turbo's limit for untrusted files is the same.
constexpr int kMaxScans = 500;

constexpr std::size_t kFirstCapacity = std::size_t{64} << 10;

static_assert(std::is_standard_layout_v<JpegErrors> && std::is_standard_layout_v<JpegMemory>);

JpegErrors& errors_of(j_common_ptr info) {
  return *reinterpret_cast<JpegErrors*>(info->err);
}

[[noreturn]] void give_up(j_common_ptr info) {
  JpegErrors& errors = errors_of(info);
  errors.manager.format_message(info, errors.message);
  std::longjmp(errors.escape, 1);
}

// Warnings that do not affect pixels: bytes between two markers, as in several files of ImageNet, and versions of
// markers.
bool is_harmless(int message) {
  return message == JWRN_EXTRANEOUS_DATA || message == JWRN_JFIF_MAJOR || message == JWRN_ADOBE_XFORM ||
         message == JWRN_BOGUS_ICC;
}

void count_warning(j_common_ptr info, int level) {
  JpegErrors& errors = errors_of(info);
  if (level >= 0 || is_harmless(errors.manager.msg_code)) return;
  if (++errors.warnings > errors.maximum_warnings) give_up(info);
}

void say_nothing(j_common_ptr /*info*/) {}

void limit_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  JpegErrors& errors = errors_of(info);
  errors.manager.msg_code = JMSG_NOMESSAGE;
  std::snprintf(errors.message, sizeof errors.message, "more than %d scans", kMaxScans);
  std::longjmp(errors.escape, 1);
}

void do_nothing(j_decompress_ptr /*info*/) {}

// The whole file is in memory: libjpeg requests more only if the file is truncated, which is an error for Pillow, too.
boolean end_of_file(j_decompress_ptr info) {
  info->err->msg_code = JERR_INPUT_EOF;
  give_up(reinterpret_cast<j_common_ptr>(info));
}

void skip_bytes(j_decompress_ptr info, long count) {
  jpeg_source_mgr& source = *info->src;
  if (count <= 0) return;
  const auto bytes = static_cast<std::size_t>(count);
  if (bytes > source.bytes_in_buffer) {
    source.next_input_byte += source.bytes_in_buffer;
    source.bytes_in_buffer = 0;
    end_of_file(info);
  }
  source.next_input_byte += bytes;
  source.bytes_in_buffer -= bytes;
}

JpegMemory& memory_of(j_compress_ptr info) {
  return *reinterpret_cast<JpegMemory*>(info->dest);
}

// Doubles the memory, or allocates the first part.
boolean grow(j_compress_ptr info) {
  JpegMemory& memory = memory_of(info);
  const std::size_t capacity = memory.capacity == 0 ? kFirstCapacity : 2 * memory.capacity;
  auto* bytes = static_cast<JOCTET*>(std::realloc(memory.bytes, capacity));
  if (bytes == nullptr) {
    info->err->msg_code = JERR_OUT_OF_MEMORY;
    info->err->msg_parm.i[0] = 0;
    give_up(reinterpret_cast<j_common_ptr>(info));
  }
  memory.manager.next_output_byte = bytes + memory.capacity;
  memory.manager.free_in_buffer = capacity - memory.capacity;
  memory.bytes = bytes;
  memory.capacity = capacity;
  return TRUE;
}

void start_output(j_compress_ptr info) {
  grow(info);
}

void finish_output(j_compress_ptr info) {
  JpegMemory& memory = memory_of(info);
  memory.size = memory.capacity - memory.manager.free_in_buffer;
}

}  // namespace

jpeg_error_mgr* start_errors(JpegErrors& errors, long maximum_warnings) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = give_up;
  errors.manager.emit_message = count_warning;
  errors.manager.output_message = say_nothing;
  errors.maximum_warnings = maximum_warnings;
  return &errors.manager;
}

bool run_guarded(JpegErrors& errors, void (*step)(const void*), const void* argument) {
  if (setjmp(errors.escape) != 0) return false;
  step(argument);
  return true;
}

JpegReader::JpegReader(std::span<const std::byte> file, const std::string& name, long maximum_warnings)
    : file_(file), name_(name) {
  info_.err = start_errors(errors_, maximum_warnings);
  if (!guarded(errors_, [this] { jpeg_create_decompress(&info_); })) {
    jpeg_destroy_decompress(&info_);
    fail();
  }
  source_.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
  source_.bytes_in_buffer = file.size();
  source_.init_source = do_nothing;
  source_.fill_input_buffer = end_of_file;
  source_.skip_input_data = skip_bytes;
  source_.resync_to_restart = jpeg_resync_to_restart;
  source_.term_source = do_nothing;
  info_.src = &source_;
  progress_.progress_monitor = limit_scans;
  info_.progress = &progress_;
}

JpegReader::~JpegReader() {
  jpeg_destroy_decompress(&info_);
}

void JpegReader::check_length() const {
  // An arithmetic coder can spend less than a bit on a block.
  if (info_.arith_code != FALSE) return;
  // Huffman codes have at least one bit, and some scan has a code for every block of one component.
  const auto units = [](JDIMENSION size, int sampling) {
    const auto unit = static_cast<std::size_t>(DCTSIZE * sampling);
    return (static_cast<std::size_t>(size) + unit - 1) / unit;
  };
  const std::size_t blocks =
      units(info_.image_width, info_.max_h_samp_factor) * units(info_.image_height, info_.max_v_samp_factor);
  if (blocks / 8 <= file_.size()) return;
  fail_image("JPEG", name_, file_.size(),
             text("expected at least ", blocks / 8, " bytes for ", info_.image_width, " x ", info_.image_height,
                  " pixels, found the end of the file (the file is truncated)"));
}

void JpegReader::fail() const {
  if (errors_.manager.msg_code == JERR_INPUT_EOF) {
    fail_image("JPEG", name_, file_.size(), "expected more data, found the end of the file (the file is truncated)");
  }
  // The start of the current MCU or marker.
  const std::size_t offset = file_.size() - source_.bytes_in_buffer;
  const std::string damage =
      errors_.warnings > errors_.maximum_warnings ? text(" (", errors_.warnings, " damaged places)") : "";
  fail_image("JPEG", name_, offset, text("expected data that libjpeg can decode, found: ", errors_.message, damage));
}

JpegWriter::JpegWriter(JpegReader& reader) {
  info_.err = reader.info().err;
  reader.run([this] { jpeg_create_compress(&info_); });
  memory_.manager.init_destination = start_output;
  memory_.manager.empty_output_buffer = grow;
  memory_.manager.term_destination = finish_output;
  info_.dest = &memory_.manager;
}

JpegWriter::~JpegWriter() {
  jpeg_destroy_compress(&info_);
  std::free(memory_.bytes);
}

}  // namespace libtrain::data::detail
