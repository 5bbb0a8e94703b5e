"""libtrain against Hugging Face's tokenizers in turning text into ids: bench_tokenizer and its peer in turns.

Each is a process of its own in each round, with one thread; the order is swapped every round. Only ratios within a round
mean something.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from comparison import ROOT, ProgramFailed, in_turns, range_of, require_program, run

PEER = ROOT / "bench" / "peers" / "tokenizer.py"
MAKE = ROOT / "bench" / "make_texts.py"
FEWEST_TO_TRUST = 15
MEASURES = {"ids s": ("ids", "median_s"), "with offsets s": ("offsets", "median_s"), "loading s": ("ids", "load_s"),
            "peak MB": ("offsets", "peak_rss_bytes")}
GOAL = 4.0  # of both kinds, for the text that is the default


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how often each program runs (default: 15)")
    parser.add_argument("--megabytes", type=float, default=50, help="of text (default: 50)")
    parser.add_argument("--vocabulary-size", type=int, default=50000, help="(default: 50000)")
    parser.add_argument("--data", type=pathlib.Path,
                        help="folder with texts.txt and tokenizer.json (default: make_texts.py is called)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_tokenizer", help="the libtrain program")
    parser.add_argument("--python", default=ROOT / ".deps/bin/python", help="a Python with tokenizers")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    options.threads = 1
    options.is_default_size = (options.megabytes, options.vocabulary_size, options.data) == (50, 50000, None)
    return options


def records_of(command, options):
    """What a program wrote with --json, by kind."""
    with tempfile.TemporaryDirectory(prefix="compare_tokenizer_") as folder:
        path = pathlib.Path(folder) / "records"
        run([*command, "--data", options.data, "--iterations", 1, "--json", path], options)
        return {record["kind"]: record for record in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def require_equal(ours, theirs):
    for kind, record in theirs.items():
        for name in ("texts", "bytes", "tokens", "sum"):
            if ours[kind][name] != record[name]:
                raise ProgramFailed(f"The {name} of {kind} differ, so the times mean nothing: {ours[kind][name]} and "
                                    f"{record[name]}")


def run_rounds(options):
    """{implementation: [records of round 1, ...]}"""
    commands = {"libtrain": [options.program], "tokenizers": [options.python, PEER]}
    results = {name: [] for name in commands}
    for name in in_turns(commands, options.rounds):
        results[name].append(records_of(commands[name], options))
        if len(results["libtrain"]) == len(results["tokenizers"]):
            require_equal(results["libtrain"][-1], results["tokenizers"][-1])
    return results


def values_of(rounds, measure):
    kind, field = MEASURES[measure]
    scale = 1e-6 if field == "peak_rss_bytes" else 1
    return [records[kind][field] * scale for records in rounds]


def ratios_of(results, measure):
    return [theirs / ours for ours, theirs in zip(*(values_of(rounds, measure) for rounds in results.values()))]


def goal_of(results, measure, goal):
    if MEASURES[measure][1] != "median_s":
        return "-"
    return f">= {goal:.0f} {'met' if statistics.median(ratios_of(results, measure)) >= goal else 'missed'}"


def table(results, goal=None):
    """Medians (least-greatest) of each implementation, and tokenizers' as a multiple of libtrain's."""
    lines = [f"{'':<22}" + "".join(f"{measure:>28}" for measure in MEASURES)]
    for name, rounds in results.items():
        cells = [range_of(values_of(rounds, measure)) for measure in MEASURES]
        lines.append(f"{name:<22}" + "".join(f"{cell:>28}" for cell in cells))
    cells = [range_of(ratios_of(results, measure), 1) for measure in MEASURES]
    lines.append(f"{'tokenizers/libtrain':<22}" + "".join(f"{cell:>28}" for cell in cells))
    if goal is not None:
        lines.append(f"{'goal':<22}" + "".join(f"{goal_of(results, measure, goal):>28}" for measure in MEASURES))
    return "\n".join(lines)


def save(results, file_name):
    with open(file_name, "a", encoding="utf-8") as file:
        for rounds in results.values():
            for number, records in enumerate(rounds):
                file.write("".join(json.dumps(record | {"round": number}) + "\n" for record in records.values()))


def measure(options):
    if options.data:
        return run_rounds(options)
    with tempfile.TemporaryDirectory(prefix="compare_tokenizer_") as folder:
        options.data = folder
        run([options.python, MAKE, folder, "--megabytes", options.megabytes, "--vocabulary-size",
             options.vocabulary_size], options)
        return run_rounds(options)


def main():
    options = parse_arguments()
    require_program(options)
    try:
        results = measure(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        save(results, options.json)
    if options.rounds < FEWEST_TO_TRUST:
        print(f"Fewer than {FEWEST_TO_TRUST} rounds: not a measurement.", file=sys.stderr)
    first = results["libtrain"][0]["ids"]
    print(f"{first['texts']} texts of {first['bytes'] * 1e-6:.1f} MB, {first['tokens']} tokens; one thread; "
          f"{options.rounds} rounds; median (least-greatest)")
    print(table(results, GOAL if options.is_default_size else None))


if __name__ == "__main__":
    main()
