#include <bench/shard_reads.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <future>
#include <span>
#include <utility>
#include <vector>

#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::bench {

namespace {

constexpr std::uint64_t kBytesOfRound = std::uint64_t{512} << 20;
constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

/// From `begin` to `end`: part number `part` of `parts`, of so many things.
struct Share {
  Share(std::uint64_t count, std::uint64_t part, std::uint64_t parts)
      : begin(count * part / parts), end(count * (part + 1) / parts) {}

  std::uint64_t begin;
  std::uint64_t end;
};

std::uint64_t passes_over(std::uint64_t bytes) {
  return bytes == 0 ? 1 : (kBytesOfRound + bytes - 1) / bytes;
}

/// Calls work(0), ..., work(threads - 1), each in a thread of its own, the first in the caller's.
void in_threads(std::uint64_t threads, const std::function<void(std::uint64_t part)>& work) {
  std::vector<std::future<void>> others;
  for (std::uint64_t part = 1; part < threads; ++part) others.push_back(std::async(std::launch::async, work, part));
  work(0);
  for (auto& other : others) other.get();
}

/// A tar archive in which an image and its label alternate, sample by sample.
class TarSamples {
 public:
  explicit TarSamples(data::TarFile archive) : archive_(std::move(archive)) {}

  std::uint64_t size() const { return archive_.size() / 2; }
  std::uint64_t bytes(std::uint64_t sample) const {
    return archive_.bytes(2 * sample) + archive_.bytes(2 * sample + 1);
  }

  void read(std::uint64_t sample, std::string& image) const {
    std::string label;
    archive_.read(2 * sample, image, 2 * sample + 1, label);
  }

 private:
  data::TarFile archive_;
};

/// `Shard` is TarSamples or a TfRecordFile.
template <typename Shard>
class ShardReads final : public LoaderWorkload {
 public:
  ShardReads(Shard shard, int threads) : shard_(std::move(shard)), threads_(static_cast<std::uint64_t>(threads)) {
    for (std::uint64_t sample = 0; sample < shard_.size(); ++sample) bytes_ += shard_.bytes(sample);
    passes_ = passes_over(bytes_);
  }

  void warm_up(Record& /*record*/) override { run(); }

  LoaderPass run() override {
    in_threads(threads_, [this](std::uint64_t part) { read({shard_.size(), part, threads_}); });
    return {.samples = passes_ * shard_.size(), .bytes = passes_ * bytes_};
  }

 private:
  void read(const Share& share) const {
    std::string buffer;
    for (std::uint64_t pass = 0; pass < passes_; ++pass) {
      for (std::uint64_t sample = share.begin; sample < share.end; ++sample) shard_.read(sample, buffer);
    }
  }

  Shard shard_;
  std::uint64_t threads_;
  std::uint64_t bytes_ = 0;  // of a pass
  std::uint64_t passes_ = 1;
};

class PlainReads final : public LoaderWorkload {
 public:
  PlainReads(std::unique_ptr<const data::File> file, std::uint64_t samples, int threads)
      : file_(std::move(file)),
        samples_(samples),
        threads_(static_cast<std::uint64_t>(threads)),
        passes_(passes_over(file_->size())) {}

  void warm_up(Record& /*record*/) override { run(); }

  LoaderPass run() override {
    const std::uint64_t blocks = (file_->size() + kBlockBytes - 1) / kBlockBytes;
    in_threads(threads_, [&](std::uint64_t part) { read({blocks, part, threads_}); });
    return {.samples = passes_ * samples_, .bytes = passes_ * file_->size()};
  }

 private:
  void read(const Share& share) const {
    std::vector<std::byte> block(static_cast<std::size_t>(kBlockBytes));
    for (std::uint64_t pass = 0; pass < passes_; ++pass) {
      for (std::uint64_t number = share.begin; number < share.end; ++number) {
        const std::uint64_t offset = number * kBlockBytes;
        const std::uint64_t bytes = std::min(kBlockBytes, file_->size() - offset);
        file_->read_at(offset, std::span{block}.first(static_cast<std::size_t>(bytes)));
      }
    }
  }

  std::unique_ptr<const data::File> file_;
  std::uint64_t samples_;
  std::uint64_t threads_;
  std::uint64_t passes_;
};

}  // namespace

std::unique_ptr<LoaderWorkload> tar_reads(const std::string& path, int threads) {
  return std::make_unique<ShardReads<TarSamples>>(TarSamples{data::TarFile{data::open_file(path)}}, threads);
}

std::unique_ptr<LoaderWorkload> tf_record_reads(const std::string& path, data::DataChecksum checksum, int threads) {
  return std::make_unique<ShardReads<data::TfRecordFile>>(data::TfRecordFile{data::open_file(path), {}, checksum},
                                                          threads);
}

std::unique_ptr<LoaderWorkload> plain_reads(const std::string& path, std::uint64_t samples, int threads) {
  return std::make_unique<PlainReads>(data::open_file(path), samples, threads);
}

}  // namespace libtrain::bench
