// How fast is an all-reduce? Checks it with exactly predictable values, then times it between barriers; a call counts
// with the time of its slowest rank:
//
//   mpirun -n 2 bench_all_reduce --peers mpi,floor
//
// The columns are those of nccl-tests; bandwidths are in GB/s and come from the median. --peers takes turns with
// others: `mpi` is one MPI_Allreduce on the same buffers, `floor` what as many threads of one process reach when they
// add as many buffers of their own (float32 sums, whatever --dtype and --op). The exit code is not zero where data is
// wrong or libtrain's busbw is below --minimum-busbw at any size.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <libtrain/libtrain.hpp>

#include <bench/all_reduce_report.hpp>
#include <bench/byte_sizes.hpp>
#include <bench/contender.hpp>
#include <bench/exact_buffers.hpp>
#include <bench/latency_fit.hpp>
#include <bench/memory_floor.hpp>
#include <bench/mpi_all_reduce.hpp>

namespace lt = libtrain;
namespace bench = libtrain::bench;

namespace {

constexpr auto kOurs = "libtrain";
constexpr auto kMpi = "mpi";
constexpr auto kFloor = "floor";

struct Peers {
  bench::HostAllReduce mpi;
  bool floor = false;
};

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

Peers peers_of(lt::Context& context) {
  Peers peers;
  for (const auto& name : split_at_commas(context.option("peers"))) {
    if (name == kMpi) {
      peers.mpi = bench::mpi_all_reduce(context.world_size());
    } else if (name == kFloor) {
      peers.floor = true;
    } else {
      throw lt::UsageError(lt::text("Option --peers names '", name, "': use mpi, floor or both, with a comma."));
    }
  }
  return peers;
}

std::vector<bench::AllReduceCase> cases_of(const lt::Context& context) {
  const auto begin = context.option("begin");
  const auto sizes = begin.empty()
                         ? bench::parse_byte_sizes(context.option("sizes"))
                         : bench::byte_sweep(bench::parse_bytes(begin), bench::parse_bytes(context.option("end")),
                                             context.integer("factor", 2, 1 << 20));
  std::vector<bench::AllReduceCase> cases;
  for (const auto bytes : sizes) {
    cases.push_back({.bytes = bytes,
                     .type = bench::parse_type(context.option("dtype")),
                     .op = bench::parse_op(context.option("op")),
                     .placement = bench::parse_placement(context.option("in-place")),
                     .memory = bench::parse_memory(context.option("memory"))});
    bench::check_case(cases.back());
  }
  return cases;
}

// On the buffers that all contenders but the floor share.
bench::Contender contender(const std::string& implementation, std::string_view backend,
                           const std::shared_ptr<bench::ExactBuffers>& buffers, const std::function<void()>& call) {
  return {.implementation = implementation,
          .backend = std::string{backend},
          .call = call,
          .clear = [buffers] { buffers->clear(); },
          .count_wrong =
              [buffers, call] {
                buffers->fill();
                call();
                return buffers->count_wrong();
              }};
}

bench::Contender floor_contender(int ranks, std::int64_t bytes, bool mine) {
  const auto threads = std::min(ranks, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  const auto floor =
      mine ? std::make_shared<bench::MemoryFloor>(ranks, static_cast<std::size_t>(bytes) / sizeof(float), threads)
           : nullptr;
  return {.implementation = kFloor,
          .backend = "threads",
          .called_by = bench::CalledBy::rank_0_alone,
          .call = [floor] { floor->add(); },
          .clear = [floor] { floor->clear(); },
          .count_wrong = [floor] { return floor->count_wrong(); }};
}

std::vector<bench::Contender> contenders_of(lt::Communicator& communicator, const bench::AllReduceCase& measured,
                                            const Peers& peers) {
  const auto buffers = std::make_shared<bench::ExactBuffers>(communicator, measured);
  std::vector<bench::Contender> contenders;
  contenders.push_back(contender(kOurs, communicator.backend(), buffers, [&communicator, buffers, measured] {
    communicator.all_reduce(buffers->input(), buffers->output(), measured.op).wait();
  }));
  if (peers.mpi) {
    contenders.push_back(contender(kMpi, kMpi, buffers, [all_reduce = peers.mpi, buffers, measured] {
      all_reduce(buffers->input().data_ptr(), buffers->output().data_ptr(), static_cast<std::size_t>(measured.count()),
                 measured.type, measured.op);
    }));
  }
  if (peers.floor) {
    contenders.push_back(floor_contender(communicator.world_size(), measured.bytes, communicator.rank() == 0));
  }
  return contenders;
}

std::vector<bench::AllReduceResult> measure(lt::Communicator& communicator, const bench::AllReduceCase& measured,
                                            const Peers& peers, const bench::Schedule& schedule) {
  const auto contenders = contenders_of(communicator, measured, peers);
  const auto measurements = bench::measure_in_turns(communicator, contenders, schedule);
  std::vector<bench::AllReduceResult> results;
  for (std::size_t index = 0; index < contenders.size(); ++index) {
    const auto& implementation = contenders[index].implementation;
    results.push_back({.measured = implementation == kFloor ? bench::AllReduceCase{.bytes = measured.bytes} : measured,
                       .implementation = implementation,
                       .backend = contenders[index].backend,
                       .ranks = communicator.world_size(),
                       .measurement = measurements[index]});
  }
  return results;
}

void print_results(const std::vector<bench::AllReduceResult>& results) {
  for (const auto& result : results) std::printf("%s\n", bench::table_row(result).c_str());
  const auto comparison = bench::comparison(results);
  if (!comparison.empty()) std::printf("%10s %s\n", "", comparison.c_str());
  std::fflush(stdout);  // the next size may take a while
}

void print_fit(const std::vector<bench::AllReduceResult>& all) {
  std::vector<bench::SizeTime> times;
  for (const auto& result : all) {
    if (result.implementation != kOurs) continue;
    times.push_back({.bytes = result.measured.bytes, .seconds = result.median_s()});
  }
  const auto fit = bench::fit_latency(times);
  if (!fit) return;
  std::printf("libtrain's medians as latency plus size over bandwidth: %.1f us and %.2f GB/s, at most %.0f%% off\n",
              1e6 * fit->latency_s, fit->bytes_per_s / 1e9, 100 * fit->worst_error);
}

// The same verdict on every rank: all of them have the same results.
void require_correct_and_fast(const std::vector<bench::AllReduceResult>& all, double minimum_busbw) {
  for (const auto& result : all) {
    if (result.measurement.wrong == 0) continue;
    throw std::runtime_error(lt::text(result.measurement.wrong, " elements of ", result.implementation, "'s ",
                                      bench::format_bytes(result.measured.bytes),
                                      " are wrong: its times mean nothing."));
  }
  for (const auto& result : all) {
    if (result.implementation != kOurs || result.busbw_gb_s() >= minimum_busbw) continue;
    throw std::runtime_error(lt::text("The bus bandwidth at ", bench::format_bytes(result.measured.bytes), " is ",
                                      result.busbw_gb_s(), " GB/s, below the ", minimum_busbw, " of --minimum-busbw."));
  }
}

void run_bench(lt::Context& context) {
  auto& communicator = context.communicator();
  const auto cases = cases_of(context);
  const bench::Schedule schedule{.iterations = context.integer("iterations", 1),
                                 .warmup = context.integer("warmup"),
                                 .budget_s = context.number("budget")};
  const auto minimum_busbw = context.number("minimum-busbw");
  const auto peers = peers_of(context);
  const auto json = context.option("json");
  const bool speaks = context.rank() == 0;
  auto file = speaks && !json.empty() ? lt::MetricsWriter::to_file(json) : lt::MetricsWriter::disabled();

  if (speaks) {
    std::printf("all-reduce, %d ranks over %s, %s memory, %s\n%s\n", context.world_size(),
                std::string{communicator.backend()}.c_str(), context.option("memory").c_str(),
                context.option("in-place") == "yes" ? "in place" : "out of place", bench::table_head().c_str());
  }
  std::vector<bench::AllReduceResult> all;
  for (const auto& measured : cases) {
    const auto results = measure(communicator, measured, peers, schedule);
    if (speaks) print_results(results);
    for (const auto& result : results) file.write(bench::record_of(result));
    all.insert(all.end(), results.begin(), results.end());
  }
  if (speaks) print_fit(all);
  require_correct_and_fast(all, minimum_busbw);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Times all-reduces of several sizes, beside plain MPI and the memory's own speed.",
       .options = {{"sizes", "Bytes of one rank's buffer, separated by commas", "4KiB,1MiB,16MiB,64MiB,256MiB"},
                   {"begin", "First of a series of sizes, instead of --sizes", ""},
                   {"end", "Last of that series", "256MiB"},
                   {"factor", "From one size of that series to the next", "4"},
                   {"dtype", "float32, float64, float16, bfloat16, int32, int64 or uint8", "float32"},
                   {"op", "sum, average, minimum, maximum or product", "sum"},
                   {"in-place", "yes, or no for an output of its own", "yes"},
                   {"memory", "allocate (the communicator's own) or ordinary", "allocate"},
                   {"iterations", "Timed calls of each size", "100"},
                   {"warmup", "Untimed calls of each size before", "5"},
                   {"budget", "Seconds of a size after which it does with fewer calls, but 15", "5"},
                   {"peers", "mpi, floor or mpi,floor: timed in turns with libtrain", ""},
                   {"minimum-busbw", "GB/s below which the exit code is not zero", "0"},
                   {"json", "File to append the records to", ""}}},
      run_bench);
}
