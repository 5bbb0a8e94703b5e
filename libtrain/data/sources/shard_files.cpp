#include <libtrain/data/sources/shard_files.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/source_checks.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint64_t kLongestClassFile = std::uint64_t{64} << 20;
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kOf = "-of-";

[[noreturn]] void fail_line(const File& file, std::size_t offset, std::string_view found) {
  throw EnvironmentError(text("File '", file.name(), "', byte offset ", offset,
                              ": expected the name of a class on every line, found ", found, "."));
}

std::vector<std::string> lines_of(const File& file) {
  const std::string content = read_all(file, kLongestClassFile);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view line = std::string_view{content}.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) fail_line(file, begin, "an empty line");
    lines.emplace_back(line);
    begin = end + 1;
  }
  if (lines.empty()) fail_line(file, 0, "no line");
  return lines;
}

constexpr std::string_view kTrain = "train";
constexpr std::array<std::string_view, 7> kSplits{kTrain, "validation", "valid", "val", "test", "dev", "eval"};

// The split with whose name the file's begins, or else that of a folder that contains it.
std::optional<std::string_view> split_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::string name = lower_case(slash == std::string_view::npos ? path : path.substr(slash + 1));
  const auto begins_with = [&](std::string_view split) {
    constexpr std::string_view kAfterWord = "-_.0123456789";
    if (!name.starts_with(split)) return false;
    return name.size() == split.size() || kAfterWord.find(name[split.size()]) != std::string_view::npos;
  };
  const auto found = std::ranges::find_if(kSplits, begins_with);
  if (found != kSplits.end()) return *found;
  return slash == std::string_view::npos ? std::nullopt : split_of(path.substr(0, slash));
}

// Removes a number of five or more digits from the end.
bool cut_number(std::string_view& name) {
  constexpr std::size_t kMinDigits = 5;
  const std::size_t last = name.find_last_not_of(kDigits);
  const std::size_t begin = last == std::string_view::npos ? 0 : last + 1;
  if (name.size() - begin < kMinDigits) return false;
  name = name.substr(0, begin);
  return true;
}

// Whether it ends like "train-00003-of-00128".
bool ends_in_shard_number(std::string_view name) {
  if (!cut_number(name) || !name.ends_with(kOf)) return false;
  name.remove_suffix(kOf.size());
  return cut_number(name) && name.ends_with('-');
}

// The name of a shard in its parts, such as "train-" "00003" "-of-" "00128" ".tar".
struct NumberedName {
  std::string_view stem = {};
  std::string_view number = {};
  std::string_view total = {};
  std::string suffix = {};
  std::string_view word = {};  // behind the total, unless it is a hash: "-en"
};

std::optional<NumberedName> parse_numbered(std::string_view name) {
  const std::size_t of = name.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t total = of + kOf.size();
  const std::size_t end = std::min(name.find_first_not_of(kDigits, total), name.size());
  if (!ends_in_shard_number(name.substr(0, end))) return std::nullopt;
  const std::size_t number = name.find_last_not_of(kDigits, of - 1) + 1;
  std::string suffix(name.substr(end));
  std::string_view word;
  // Hugging Face's older Parquet files have a hash there, another in each.
  if (suffix.starts_with('-')) {
    word = name.substr(end, std::min(suffix.find('.'), suffix.size()));
    constexpr std::size_t kHash = 16;
    if (word.size() == 1 + kHash && word.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos) word = {};
    suffix = text('*', suffix.substr(std::min(suffix.find('.'), suffix.size())));
  }
  return NumberedName{.stem = name.substr(0, number),
                      .number = name.substr(number, of - number),
                      .total = name.substr(total, end - total),
                      .suffix = std::move(suffix),
                      .word = word};
}

using ShardNumbers = std::map<std::string, std::set<std::string, std::less<>>, std::less<>>;  // by their total

[[noreturn]] void fail_two_sets(const std::string& folder, const std::string& stem, const std::string& suffix,
                                const ShardNumbers& numbers) {
  const auto shown = [&](const std::string& total) { return text("'", stem, "*-of-", total, suffix, "'"); };
  throw EnvironmentError(text("Folder '", folder, "': expected the shards of one set, found some of ",
                              shown(numbers.begin()->first), " and some of ", shown(std::next(numbers.begin())->first),
                              ". Remove those of the other set."));
}

std::string with_digits(std::uint64_t number, std::size_t digits) {
  const std::string plain = std::to_string(number);
  return std::string(digits - std::min(digits, plain.size()), '0') + plain;
}

void require_complete(const std::string& folder, const std::string& stem, const std::string& suffix,
                      const std::string& total, const std::set<std::string, std::less<>>& found) {
  const auto count =
      libtrain::detail::parse_decimal<std::uint64_t>(total, 0, std::numeric_limits<std::uint64_t>::max());
  if (!count || found.size() >= *count) return;
  // Some programs count from 1.
  std::uint64_t missing = found.contains(total) ? 1 : 0;
  while (found.contains(with_digits(missing, total.size()))) ++missing;
  throw EnvironmentError(text("Folder '", folder, "': expected all ", *count, " shards of '", stem, "*-of-", total,
                              suffix, "', found ", found.size(), ", without '", stem,
                              with_digits(missing, total.size()), "-of-", total, suffix,
                              "'. Copy the missing shards, or write the set again."));
}

}  // namespace

ClassNames::ClassNames(const File& file) : file_(file.name()), names_(lines_of(file)) {}

void ClassNames::fail(std::int64_t label, const std::string& source) const {
  throw EnvironmentError(text(source, ": expected a label below ", names_.size(), ", the number of classes in '", file_,
                              "', found ", label, ". Correct the labels or that file."));
}

ShardTable::ShardTable(std::string name, const std::vector<std::uint64_t>& sizes) : name_(std::move(name)) {
  ends_.reserve(sizes.size());
  std::uint64_t images = 0;
  for (const std::uint64_t size : sizes) {
    if (size > std::numeric_limits<std::uint64_t>::max() - images) {
      throw EnvironmentError(text("Folder '", name_, "': expected fewer than 2^64 images in total, found ", images,
                                  " in some shards and ", size, " in the next, which must be damaged."));
    }
    images += size;
    ends_.push_back(images);
  }
  require_images(images, name_);
}

ShardPlace ShardTable::place(std::uint64_t index) const {
  require_image(index, size(), name_);
  // The first shard that ends after the image contains it; an empty shard ends where the previous one does.
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const std::uint64_t begin = end == ends_.begin() ? 0 : *(end - 1);
  return {.shard = static_cast<std::size_t>(end - ends_.begin()), .position = index - begin};
}

std::vector<std::uint64_t> ShardTable::blocks() const {
  std::vector<std::uint64_t> blocks;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends_) {
    if (end > begin) blocks.push_back(end - begin);
    begin = end;
  }
  return blocks;
}

std::string_view name_of(ShardKind kind) {
  switch (kind) {
    case ShardKind::parquet:
      return "Parquet files";
    case ShardKind::tar:
      return "tar archives";
    case ShardKind::tf_record:
      break;
  }
  return "TFRecord files";
}

std::optional<ShardKind> shard_kind_of(std::string_view path, std::string_view folder, std::string_view prefix) {
  const std::size_t begin = folder.empty() ? 0 : folder.size() + 1;
  if (path.size() <= begin || !path.starts_with(folder)) return std::nullopt;
  const std::string_view name = path.substr(begin);
  if (name.find('/') != std::string_view::npos || !name.starts_with(prefix)) return std::nullopt;

  const std::string small = lower_case(name);
  if (small.ends_with(".parquet")) return ShardKind::parquet;
  if (small.ends_with(".tar") || small.ends_with(".tar.gz") || small.ends_with(".tgz")) return ShardKind::tar;
  if (small.ends_with(".tfrecord-index") || small.ends_with(".partial")) return std::nullopt;
  if (small.find(".tfrecord") != std::string::npos || ends_in_shard_number(small)) return ShardKind::tf_record;
  return std::nullopt;
}

void require_finished_set(const Storage& storage, const std::string& folder, const std::vector<FileInfo>& files) {
  const std::string unfinished = text(folder, folder.empty() ? "" : "/", kUnfinishedSet);
  if (std::ranges::find(files, unfinished, &FileInfo::path) == files.end()) return;
  throw EnvironmentError(text("Folder '", describe(storage, folder),
                              "': libtrain-pack is replacing the shards of this folder, or was killed while it "
                              "replaced them. Wait until it finishes, or run it again on this folder, which restores "
                              "the previous shards first."));
}

std::vector<std::string_view> names_of(const std::vector<FileInfo>& files, const std::string& folder) {
  std::vector<std::string_view> names;
  names.reserve(files.size());
  for (const auto& file : files) {
    names.push_back(std::string_view(file.path).substr(folder.empty() ? 0 : folder.size() + 1));
  }
  return names;
}

void require_one_split(const std::string& folder, const std::vector<std::string_view>& names, std::string_view advice) {
  std::set<std::string_view> splits;
  for (const std::string_view name : names) {
    if (const auto split = split_of(name)) splits.insert(*split);
  }
  if (splits.size() < 2 || !splits.contains(kTrain)) return;
  throw EnvironmentError(text("Folder '", folder, "': expected the files of one split, found those of '",
                              join(splits, "', '"), "'. ", advice));
}

void require_complete_sets(const std::string& folder, const std::vector<std::string_view>& names,
                           std::string_view prefix) {
  std::map<std::pair<std::string, std::string>, ShardNumbers> sets;  // by the parts around the numbers
  std::map<std::string, std::string_view> shards;
  for (const std::string_view name : names) {
    const auto parts = parse_numbered(name);
    // A longer prefix chooses some shards of a set.
    if (!parts || prefix.size() > parts->stem.size()) continue;
    // As where a data set was downloaded again, and its files have other hashes, or none, since.
    const auto [same, is_new] = shards.emplace(text(parts->stem, parts->number, kOf, parts->total,
                                                    parts->suffix.substr(parts->suffix.starts_with('*')), parts->word),
                                               name);
    if (!is_new) {
      throw EnvironmentError(text("Folder '", folder, "': expected each shard once, found '", same->second, "' and '",
                                  name, "'. Remove the one that is older."));
    }
    sets[{std::string(parts->stem), parts->suffix}][std::string(parts->total)].emplace(parts->number);
  }
  for (const auto& [around, numbers] : sets) {
    const auto& [stem, suffix] = around;
    if (numbers.size() > 1) fail_two_sets(folder, stem, suffix, numbers);
    require_complete(folder, stem, suffix, numbers.begin()->first, numbers.begin()->second);
  }
}

ShardFolder list_shards(const Storage& storage, const std::string& folder, const std::optional<std::string>& prefix,
                        ShardKind kind) {
  const std::string class_names = folder.empty() ? "classes.txt" : folder + "/classes.txt";
  auto files = storage.list(folder);
  require_finished_set(storage, folder, files);
  ShardFolder found;
  for (auto& file : files) {
    if (file.path == class_names) found.class_names = class_names;
    if (shard_kind_of(file.path, folder, prefix.value_or("")) == kind) found.shards.push_back(std::move(file));
  }
  if (found.shards.empty()) {
    const std::string named = prefix.value_or("").empty() ? "" : text(" with names that begin with '", *prefix, "'");
    throw EnvironmentError(text("Folder '", describe(storage, folder), "': expected ", name_of(kind), named,
                                " directly in it, found none among its ", files.size(),
                                " files. Give the folder that contains them."));
  }
  if (!prefix) return found;
  const std::vector<std::string_view> names = names_of(found.shards, folder);
  require_one_split(describe(storage, folder), names, "Choose one of them by the prefix of its names.");
  require_complete_sets(describe(storage, folder), names, *prefix);
  return found;
}

void require_samples(std::uint64_t samples, const std::string& shard) {
  if (samples > 0) return;
  throw EnvironmentError(text("Shard '", shard,
                              "': expected samples, found none; it may be an incomplete copy. Write the shard again, "
                              "or remove it."));
}

}  // namespace libtrain::data::detail
