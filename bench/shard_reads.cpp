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
constexpr std::uint64_t kMembersOfTarSample = 2;

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

/// `Shard` is a TarFile or a TfRecordFile. Each entry of a sample has a buffer of its own, as a reader of samples has.
template <typename Shard>
class ShardReads final : public LoaderWorkload {
 public:
  ShardReads(Shard shard, std::uint64_t entries_of_sample, int threads)
      : shard_(std::move(shard)), entries_of_sample_(entries_of_sample), threads_(static_cast<std::uint64_t>(threads)) {
    for (std::uint64_t entry = 0; entry < shard_.size(); ++entry) bytes_ += shard_.bytes(entry);
    passes_ = passes_over(bytes_);
  }

  void warm_up(Record& /*record*/) override { run(); }

  LoaderPass run() override {
    in_threads(threads_, [this](std::uint64_t part) { read({shard_.size(), part, threads_}); });
    return {.samples = passes_ * shard_.size() / entries_of_sample_, .bytes = passes_ * bytes_};
  }

 private:
  void read(const Share& share) const {
    std::vector<std::string> buffers(static_cast<std::size_t>(entries_of_sample_));
    for (std::uint64_t pass = 0; pass < passes_; ++pass) {
      for (std::uint64_t entry = share.begin; entry < share.end; ++entry) {
        shard_.read(entry, buffers[static_cast<std::size_t>(entry % entries_of_sample_)]);
      }
    }
  }

  Shard shard_;
  std::uint64_t entries_of_sample_;
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
  return std::make_unique<ShardReads<data::TarFile>>(data::TarFile{data::open_file(path)}, kMembersOfTarSample,
                                                     threads);
}

std::unique_ptr<LoaderWorkload> tf_record_reads(const std::string& path, data::DataChecksum checksum, int threads) {
  return std::make_unique<ShardReads<data::TfRecordFile>>(data::TfRecordFile{data::open_file(path), {}, checksum}, 1,
                                                          threads);
}

std::unique_ptr<LoaderWorkload> plain_reads(const std::string& path, std::uint64_t samples, int threads) {
  return std::make_unique<PlainReads>(data::open_file(path), samples, threads);
}

}  // namespace libtrain::bench
