#pragma once

#include <string>
#include <vector>

#include <bench/all_reduce_case.hpp>
#include <bench/contender.hpp>
#include <libtrain/observe/record.hpp>

namespace libtrain::bench {

/// One line of the table and one record: a contender's measurement at one size.
struct AllReduceResult {
  AllReduceCase measured;
  std::string implementation;
  std::string backend;
  int ranks = 1;
  Measurement measurement;

  double minimum_s() const;
  double median_s() const;
  double p99_s() const;

  /// Bytes of one rank's buffer divided by the median time.
  double algbw_gb_s() const;

  /// algbw times 2 (n - 1) / n for n ranks, as nccl-tests define it:
  /// https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
  double busbw_gb_s() const;
};

Record record_of(const AllReduceResult& result);

/// The columns' names, for above the rows.
std::string table_head();
std::string table_row(const AllReduceResult& result);

/// The first result's speed as a multiple of each other one's: "libtrain: 4.61 times mpi, 0.83 times floor (medians)".
/// Empty for a single result.
std::string comparison(const std::vector<AllReduceResult>& results);

}  // namespace libtrain::bench
