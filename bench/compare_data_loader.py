"""libtrain's data loader against PyTorch's, against its own parts put together otherwise, and against plain reading.

Starts bench_data_loader, a second one to work beside it, and bench/peers/data_loader.py once and has them run a round
of each workload in turns, in the opposite order every other round; one round before is not counted. What counts is
work per second of CPU time, all threads and processes together, and only ratios within a round. Two processes, which
share nothing, show how far this machine's second core goes; two threads cannot go much further. Makes the photographs
and the shards that it needs where they are missing.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Optional

from comparison import GRACE_S, LINES_OF_A_FAILURE, ROOT, ProgramFailed, end, make_photographs, range_of

PEER = ROOT / "bench" / "peers" / "data_loader.py"
ROUND_TIMEOUT_S = 600
FEWEST_ROUNDS_TO_TRUST = 15
# Random crops move the mean of a few photographs; pictures that are not normalised are further away.
MEAN_TOLERANCE = 0.15
RATES = ("samples_per_s", "samples_per_core_s", "bytes_per_core_s")


class Contestant(NamedTuple):
    workload: str
    threads: int = 1  # of each process
    implementation: str = "libtrain"
    processes: int = 1


class Comparison(NamedTuple):
    title: str
    ours: Contestant
    other: Contestant
    rate: str = "samples_per_core_s"
    goal: Optional[float] = None


CROPS = Contestant("random_resized_crop")
PYTORCH_CROPS = Contestant("random_resized_crop", implementation="pytorch")
COMPARISONS = (
    Comparison("random resized crop / PyTorch's loader", CROPS, PYTORCH_CROPS, goal=4.5),
    Comparison("random resized crop / decode, then crop", CROPS, Contestant("decode_then_crop"), goal=1.15),
    Comparison("restart-marked shards / random resized crop", Contestant("restart_shards"), CROPS, goal=1.15),
    Comparison("restart-marked shards / shards without", Contestant("restart_shards"), Contestant("shards")),
    Comparison("2 threads / 1", CROPS._replace(threads=2), CROPS, "samples_per_s", 1.9),
    Comparison("2 processes / 1: what this machine allows", CROPS._replace(processes=2), CROPS, "samples_per_s"),
    Comparison("tar / plain reading", Contestant("tar_read"), Contestant("tar_plain_read"), "bytes_per_core_s", 0.8),
    Comparison("TFRecord / plain reading",
               Contestant("tfrecord_read"), Contestant("tfrecord_plain_read"), "bytes_per_core_s", 0.8),
    Comparison("TFRecord without checksums / plain reading",
               Contestant("tfrecord_read_unchecked"), Contestant("tfrecord_plain_read"), "bytes_per_core_s", 0.8),
)
CONTESTANTS = tuple(dict.fromkeys(side for each in COMPARISONS for side in (each.ours, each.other)))


class Program:
    """A program that runs a round for every line that it gets, and answers with the record of it."""

    def __init__(self, command):
        self.command = " ".join(map(str, command))
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,
        )

    def round(self, contestant):
        hung = threading.Timer(ROUND_TIMEOUT_S, end, [self.process])
        hung.start()
        try:
            self.process.stdin.write(f"{contestant.workload} {contestant.threads}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            hung.cancel()
        if not answer:
            raise ProgramFailed(f"{self.command} ended or hung at {contestant.workload}:\n{self.last_words()}")
        return json.loads(answer)

    def last_words(self):
        end(self.process)
        self.errors.seek(0)
        return "".join(self.errors.readlines()[-LINES_OF_A_FAILURE:])

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=GRACE_S)
        end(self.process)
        self.process.stdout.close()
        self.errors.close()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how often each workload runs (default: 15)")
    parser.add_argument("--images", type=int, default=1024, help="photographs to make where missing (default: 1024)")
    parser.add_argument("--data", type=pathlib.Path, help="folder with photographs/ and what is made of them "
                        "(default: build/photographs-<images>)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_data_loader", help="the libtrain program")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torchvision (default: this one)")
    parser.add_argument("--json", metavar="FILE", help="append every record, with its round, to this file")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not os.access(options.program, os.X_OK):
        parser.error(f"there is no program at {options.program}; build it, or name it with --program")
    options.data = options.data or ROOT / "build" / f"photographs-{options.images}"
    return options


def require_same_pictures(ours, theirs):
    """Programs that make different pictures would be compared for nothing."""
    for what in ("shape", "dtype", "channels_last", "samples"):
        if ours[what] != theirs[what]:
            raise ProgramFailed(f"libtrain's {what} is {ours[what]}, PyTorch's {theirs[what]}.")
    if abs(ours["mean"] - theirs["mean"]) > MEAN_TOLERANCE:
        raise ProgramFailed(f"libtrain's pictures have the mean {ours['mean']:.3f}, PyTorch's {theirs['mean']:.3f}.")


def run_rounds(options):
    """{contestant: [record of round 0, record of round 1, ...]}"""
    results = {each: [] for each in CONTESTANTS}
    with contextlib.ExitStack() as stack:
        programs = {}
        for name, command in (("libtrain", [options.program]), ("pytorch", [options.python, PEER])):
            programs[name] = []
            for _ in range(max(each.processes for each in CONTESTANTS if each.implementation == name)):
                programs[name].append(Program([*command, f"--data={options.data}", "--serve"]))
                stack.callback(programs[name][-1].close)
        # Each starts and warms up while nobody is timed.
        for each in CONTESTANTS:
            round_of(programs[each.implementation], each)
        for number in range(options.rounds):
            print(f"round {number + 1}/{options.rounds}", file=sys.stderr)
            for each in CONTESTANTS if number % 2 == 0 else reversed(CONTESTANTS):
                results[each].append(round_of(programs[each.implementation], each))
            require_same_pictures(results[CROPS][-1], results[PYTORCH_CROPS][-1])
    return results


def save(results, file_name):
    with open(file_name, "a", encoding="utf-8") as file:
        for records in results.values():
            for number, record in enumerate(records):
                file.write(json.dumps({**record, "round": number}) + "\n")


def together(records):
    """The record of what processes did at the same time, where that is several: until the last of them was done."""
    if len(records) == 1:
        return records[0]
    joined = records[0] | {name: sum(record[name] for record in records) for name in ("samples", "bytes")}
    joined |= {name: max(record[name] for record in records) for name in ("median_s", "min_s")}
    joined |= {name: sum(record[name] for record in records) for name in ("median_core_s", "min_core_s")}
    for amount in ("samples", "bytes"):
        joined[f"{amount}_per_s"] = joined[amount] / joined["median_s"]
        joined[f"{amount}_per_core_s"] = joined[amount] / joined["median_core_s"]
    return joined


def round_of(programs, contestant):
    """The record of a round, of as many of the programs as the contestant has processes."""
    with ThreadPoolExecutor(contestant.processes) as pool:
        records = list(pool.map(lambda program: program.round(contestant), programs[:contestant.processes]))
    return together(records) | {"processes": contestant.processes}


def rates(results, contestant, rate):
    return [record[rate] for record in results[contestant]]


def rate_line(results, contestant):
    line = f"{contestant.implementation:<10}{contestant.workload:<25}{contestant.processes:>9}{contestant.threads:>9}"
    for rate, scale in zip(RATES, (1, 1, 1e-6)):
        line += f"{range_of([value * scale for value in rates(results, contestant, rate)], 0):>26}"
    return line


def comparison_line(results, comparison):
    ours, others = (rates(results, side, comparison.rate) for side in (comparison.ours, comparison.other))
    quotients = [our / other for our, other in zip(ours, others)]
    line = f"{comparison.title:<46}{range_of(quotients, 2):>22}{max(ours) / max(others):>12.2f}"
    if comparison.goal is None:
        return line + f"{'-':>8}"
    return line + f"{comparison.goal:>8.2f}  {'met' if statistics.median(quotients) >= comparison.goal else 'missed'}"


def table(results):
    rounds = len(results[CROPS])
    lines = [f"{results[CROPS][0]['samples']} photographs, {rounds} rounds; median (least-greatest) over rounds", ""]
    lines += [f"{'':<35}{'processes':>9}{'threads':>9}{'samples/s':>26}{'samples/core s':>26}{'MB/core s':>26}"]
    lines += [rate_line(results, each) for each in CONTESTANTS]
    lines += ["", f"{'times as fast':<46}{'within a round':>22}{'of fastest':>12}{'goal':>8}"]
    lines += [comparison_line(results, each) for each in COMPARISONS]
    return "\n".join(lines)


def main():
    options = parse_arguments()
    if options.rounds < FEWEST_ROUNDS_TO_TRUST:
        print(f"Fewer than {FEWEST_ROUNDS_TO_TRUST} rounds: not a measurement.", file=sys.stderr)
    try:
        photographs = options.data / "photographs"
        if not photographs.exists():
            make_photographs(options, photographs, options.images)
        results = run_rounds(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        save(results, options.json)
    print(table(results))


if __name__ == "__main__":
    main()
