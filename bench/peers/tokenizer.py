"""Lines of text become ids by Hugging Face's `tokenizers`, in one thread: the peer of bench_tokenizer.

Lines are encoded in batches. What is done with the ids afterwards is not timed.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import time

LINES_AT_ONCE = 1000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with texts.txt and tokenizer.json")
    parser.add_argument("--iterations", type=int, default=1, help="timed runs (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    if options.iterations < 1:
        parser.error("--iterations must be at least 1")
    return options


def encode(encode_batch, lines):
    """Seconds, how many ids there are, and their sum."""
    seconds, tokens, total = 0.0, 0, 0
    for begin in range(0, len(lines), LINES_AT_ONCE):
        start = time.perf_counter()
        encodings = encode_batch(lines[begin:begin + LINES_AT_ONCE])
        seconds += time.perf_counter() - start
        for encoding in encodings:
            tokens += len(encoding)
            total += sum(encoding.ids)
    return seconds, tokens, total


def measure(options):
    """A record of each kind: without offsets, as it is fastest, and with them."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    start = time.perf_counter()
    tokenizer = Tokenizer.from_file(str(options.data / "tokenizer.json"))
    load_s = time.perf_counter() - start
    content = (options.data / "texts.txt").read_text(encoding="utf-8")
    lines = content.split("\n")[:-1]
    records = []
    for kind, encode_batch in (("ids", tokenizer.encode_batch_fast), ("offsets", tokenizer.encode_batch)):
        results = [encode(encode_batch, lines) for _ in range(options.iterations)]
        seconds = [result[0] for result in results]
        records.append({
            "event": "tokenizer",
            "time": time.time(),
            "implementation": "tokenizers",
            "kind": kind,
            "threads": 1,
            "texts": len(lines),
            "bytes": len(content.encode()),
            "tokens": results[0][1],
            "sum": results[0][2],
            "iterations": options.iterations,
            "median_s": statistics.median(seconds),
            "min_s": min(seconds),
            "load_s": load_s,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        })
    return records


def main():
    options = parse_arguments()
    records = measure(options)
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records))
    for record in records:
        print(f"{record['kind']:<10}{record['bytes'] / record['median_s'] * 1e-6:>10.2f} MB/s, {record['tokens']} tokens")


if __name__ == "__main__":
    main()
