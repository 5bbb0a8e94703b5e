#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <bench/loader_workload.hpp>
#include <libtrain/data/formats/tf_record.hpp>

namespace libtrain::bench {

// Reading without decoding: see make_loader_workload(). A round goes through the file so often that it reads 512 MiB.

/// Of a tar archive with two members a sample, into two buffers that are used again.
std::unique_ptr<LoaderWorkload> tar_reads(const std::string& path, int threads);

/// Of a TFRecord file, into a buffer that is used again.
std::unique_ptr<LoaderWorkload> tf_record_reads(const std::string& path, data::DataChecksum checksum, int threads);

/// Of any file that holds so many samples, in blocks of 1 MiB into a buffer that is used again: what reading from the
/// page cache costs at least, as the kernel has to copy the bytes.
std::unique_ptr<LoaderWorkload> plain_reads(const std::string& path, std::uint64_t samples, int threads);

}  // namespace libtrain::bench
