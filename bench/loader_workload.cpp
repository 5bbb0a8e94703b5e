#include <bench/loader_workload.hpp>

#include <bench/picture_workload.hpp>
#include <bench/shard_reads.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::bench {

const std::vector<std::string>& loader_workload_names() {
  static const std::vector<std::string> names{"random_resized_crop",
                                              "decode_then_crop",
                                              "shards",
                                              "restart_shards",
                                              "tar_read",
                                              "tar_plain_read",
                                              "tfrecord_read",
                                              "tfrecord_read_unchecked",
                                              "tfrecord_plain_read"};
  return names;
}

std::unique_ptr<LoaderWorkload> make_loader_workload(const std::string& name, int threads, const LoaderData& files) {
  if (name == "random_resized_crop") return random_resized_crops(open_images(files.photographs), threads);
  if (name == "decode_then_crop") return decoded_then_cropped(open_images(files.photographs), threads);
  if (name == "shards") return random_resized_crops(open_images(files.shards), threads);
  if (name == "restart_shards") return random_resized_crops(open_images(files.restart_shards), threads);
  if (name == "tar_read") return tar_reads(files.tar, threads);
  if (name == "tar_plain_read") return plain_reads(files.tar, files.images, threads);
  if (name == "tfrecord_read") return tf_record_reads(files.tf_record, data::DataChecksum::verify, threads);
  if (name == "tfrecord_read_unchecked") return tf_record_reads(files.tf_record, data::DataChecksum::ignore, threads);
  if (name == "tfrecord_plain_read") return plain_reads(files.tf_record, files.images, threads);
  throw UsageError(text("There is no workload '", name, "'; choose from ", join(loader_workload_names(), ", "), "."));
}

}  // namespace libtrain::bench
