"""libtrain's RoBERTa against transformers': bench_roberta and its peer in turns.

Each is a process of its own in each round, with the same sizes, texts, optimizer and threads; the order is swapped every
round. "Same settings" is libtrain in float32, in which transformers train; "default" libtrain in bfloat16 if the
processor has instructions for it. Only ratios within a round mean something.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from comparison import ROOT, ProgramFailed, fastest_precision, in_turns, range_of, require_program, run

PEER = ROOT / "bench" / "peers" / "roberta.py"
FEWEST_TO_TRUST = 15  # timed steps of each program in all rounds
# How many times as fast as transformers, with the same settings and by default.
GOALS = {"step": (1.1, 1.8), "mixed": (None, 2.5)}
MEMORY_GOAL = 0.75  # of transformers' peak


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=GOALS, default="step", help="(default: step)")
    parser.add_argument("--size", choices=("base", "tiny"), default="base", help="of the model (default: base)")
    parser.add_argument("--texts", type=int, help="of a step (default: 8 of step, 32 of mixed)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs (default: 5)")
    parser.add_argument("--iterations", type=int, default=3, help="timed steps of each in a round (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="of each program (default: 2)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_roberta", help="the libtrain program")
    parser.add_argument("--python", default=ROOT / ".deps/bin/python", help="a Python with transformers")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    for name in ("rounds", "iterations", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def record_of(command, options, folder):
    path = pathlib.Path(folder) / "record"
    path.unlink(missing_ok=True)
    run([*command, "--data", folder, "--workload", options.workload, "--iterations", options.iterations, "--json", path],
        options)
    return json.loads(path.read_text(encoding="utf-8"))


def run_rounds(options, folder):
    """{contender: [record of round 1, ...]}"""
    commands = {"same settings": [options.program], "default": [options.program, "--precision", fastest_precision()],
                "transformers": [options.python, PEER]}
    results = {name: [] for name in commands}
    for name in in_turns(commands, options.rounds):
        results[name].append(record_of(commands[name], options, folder))
    return results


def require_equal_models(results):
    counts = {name: records[0]["parameters"] for name, records in results.items()}
    if len(set(counts.values())) != 1:
        raise ProgramFailed(f"The models differ in their numbers of parameters: {counts}.")


def verdict(value, goal, is_met):
    return "-" if goal is None else f"{goal} {'met' if is_met(value, goal) else 'missed'}"


def table(results, goals):
    """Medians (least-greatest) of the rounds' medians, and how many times as fast as transformers each is."""
    peers = results["transformers"]
    lines = [f"{'':<16}{'tokens':>8}{'median s':>26}{'times as fast':>22}{'goal':>13}{'peak MB':>9}{'of theirs':>11}{'goal':>13}"]
    for (name, records), goal in zip(results.items(), (*goals, None), strict=True):
        ratios = [theirs["median_s"] / ours["median_s"] for ours, theirs in zip(records, peers, strict=True)]
        peak = max(record["peak_rss_bytes"] for record in records)
        share = peak / max(record["peak_rss_bytes"] for record in peers)
        memory_goal = MEMORY_GOAL if name != "transformers" else None
        lines.append(
            f"{name:<16}{records[0]['tokens']:>8.0f}{range_of([record['median_s'] for record in records], 4):>26}"
            f"{range_of(ratios, 2):>22}{verdict(statistics.median(ratios), goal, float.__ge__):>13}{peak / 1e6:>9.0f}"
            f"{share:>11.2f}{verdict(share, memory_goal, float.__le__):>13}")
    return "\n".join(lines)


def main():
    options = parse_arguments()
    require_program(options)
    try:
        with tempfile.TemporaryDirectory(prefix="compare_roberta_") as folder:
            words = ["--size", options.size, *(["--texts", options.texts] if options.texts else [])]
            run([options.python, PEER, "--make", folder, *words], options)
            results = run_rounds(options, folder)
        require_equal_models(results)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for records in results.values():
                file.write("".join(json.dumps(record | {"round": number}) + "\n" for number, record in enumerate(records)))
    if options.rounds * options.iterations < FEWEST_TO_TRUST:
        print(f"Fewer than {FEWEST_TO_TRUST} timed steps: not a measurement.", file=sys.stderr)
    print(f"{options.workload}, {options.size}, {options.threads} threads, {options.rounds} rounds of {options.iterations}; "
          "median (least-greatest)")
    print(table(results, GOALS[options.workload]))


if __name__ == "__main__":
    main()
