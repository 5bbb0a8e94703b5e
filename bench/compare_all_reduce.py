"""libtrain's all-reduce against gloo's: runs bench_all_reduce and bench/peers/gloo_all_reduce.py in turns.

bench_all_reduce itself takes turns with plain MPI and with the memory floor (--peers). The order of the two programs is
swapped every round, and only ratios within a round are compared.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile

from comparison import ROOT, ProgramFailed, launch, range_of, require_programs, run

PEER = ROOT / "bench" / "peers" / "gloo_all_reduce.py"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs (default: 3)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", default="4KiB,1MiB,16MiB,64MiB,256MiB", help="bytes of one rank's buffer")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--op", default="sum")
    parser.add_argument("--iterations", type=int, default=100, help="timed calls of each size in a run (default: 100)")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--budget", type=float, default=5, help="seconds of a size before fewer calls do")
    parser.add_argument("--threads", type=int, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--peers", default="mpi,floor", help="taking turns with libtrain (default: mpi,floor)")
    parser.add_argument("--no-gloo", action="store_true", help="run bench_all_reduce only")
    parser.add_argument(
        "--extra-args",
        default="",
        metavar="ARGS",
        help="more arguments for bench_all_reduce, to choose another transport: --extra-args='--memory ordinary'",
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable for bench_all_reduce"
    )
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_all_reduce", help="the libtrain program")
    parser.add_argument("--mpirun", default=ROOT / ".deps/bin/mpirun")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch (default: this one)")
    parser.add_argument("--json", metavar="FILE", help="append every record, with its round, to this file")
    options = parser.parse_args()
    if min(options.rounds, options.ranks, options.iterations) < 1:
        parser.error("--rounds, --ranks and --iterations must be at least 1")
    for setting in options.env:
        if "=" not in setting:
            parser.error(f"--env takes NAME=VALUE, not '{setting}'")
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def common_arguments(options, json_file):
    return [
        f"--sizes={options.sizes}",
        f"--dtype={options.dtype}",
        f"--op={options.op}",
        f"--iterations={options.iterations}",
        f"--warmup={options.warmup}",
        f"--budget={options.budget}",
        f"--json={json_file}",
    ]


def libtrain_command(options, directory, json_file):
    settings = [word for setting in options.env for word in ("-x", setting)]
    own = [f"--peers={options.peers}", f"--output={directory}", *shlex.split(options.extra_args)]
    return [*launch(options), *settings, options.program, *common_arguments(options, json_file), *own]


def gloo_command(options, _directory, json_file):
    own = [f"--ranks={options.ranks}", f"--threads={options.threads}"]
    return [options.python, PEER, *common_arguments(options, json_file), *own]


def read_records(json_file):
    """The all_reduce records of one run: {(bytes, implementation): record}."""
    records = {}
    for line in json_file.read_text(encoding="utf-8").splitlines() if json_file.exists() else []:
        record = json.loads(line)
        if record.get("event") == "all_reduce":
            records[record["bytes"], record["implementation"]] = record
    if not records:
        raise ProgramFailed(f"{json_file.name} holds no all_reduce record.")
    return records


def run_rounds(options):
    """The records of each round, of both programs together."""
    programs = [("bench_all_reduce", libtrain_command)]
    programs += [] if options.no_gloo else [("gloo_all_reduce", gloo_command)]
    rounds = []
    for number in range(options.rounds):
        records = {}
        for name, command_of in programs if number % 2 == 0 else reversed(programs):
            print(f"round {number + 1}/{options.rounds}: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="compare_all_reduce_") as directory:
                json_file = pathlib.Path(directory) / f"{name}.jsonl"
                run(command_of(options, directory, json_file), options)
                records |= read_records(json_file)
        rounds.append(records)
    return rounds


def save(rounds, file_name):
    with open(file_name, "a", encoding="utf-8") as file:
        for number, records in enumerate(rounds):
            for record in records.values():
                file.write(json.dumps({**record, "round": number}) + "\n")


def times(rounds, size, implementation, statistic):
    """One entry a round; empty where the implementation was not measured."""
    return [records[size, implementation][statistic] for records in rounds if (size, implementation) in records]


def quotients(rounds, size, implementation, statistic):
    """How many times libtrain is as fast as another implementation, one entry a round."""
    ours = times(rounds, size, "libtrain", statistic)
    theirs = times(rounds, size, implementation, statistic)
    return [their / our for our, their in zip(ours, theirs)]


def cell(values, scale, decimals):
    return range_of([scale * value for value in values], decimals) if values else "-"


def table(rounds, statistic):
    """One line a size: the times, and libtrain's speed as a multiple of the others' and a share of the floor's."""
    head = f"{'bytes':>10}" + "".join(f"{name + ' us':>13}" for name in ("libtrain", "gloo", "mpi", "floor"))
    lines = [head + "".join(f"{name:>22}" for name in ("times gloo", "times MPI", "% of floor"))]
    for size in sorted({size for size, _ in rounds[0]}):
        line = f"{size:>10}"
        for name in ("libtrain", "gloo", "mpi", "floor"):
            values = times(rounds, size, name, statistic)
            line += f"{statistics.median(values) * 1e6:>13.1f}" if values else f"{'-':>13}"
        for name, scale, decimals in (("gloo", 1, 1), ("mpi", 1, 2), ("floor", 100, 0)):
            line += f"{cell(quotients(rounds, size, name, statistic), scale, decimals):>22}"
        lines.append(line)
    return "\n".join(lines)


def print_tables(rounds, options):
    backend = next(record["backend"] for record in rounds[0].values() if record["implementation"] == "libtrain")
    print(
        f"all-reduce ({options.op}, {options.dtype}), {options.ranks} ranks over {backend}, "
        f"{options.rounds} rounds; ratios are median (least-greatest) over rounds"
    )
    for title, statistic in (("median of a round's calls", "median_s"), ("fastest of a round's calls", "min_s")):
        print(f"\n{title}\n{table(rounds, statistic)}")


def main():
    options = parse_arguments()
    require_programs(options, "bench_all_reduce")
    try:
        rounds = run_rounds(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        save(rounds, options.json)
    print_tables(rounds, options)


if __name__ == "__main__":
    main()
