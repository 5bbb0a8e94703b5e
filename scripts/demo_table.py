#!/usr/bin/env python3
"""Prints the result of scripts/demo.sh as a table, read from the metrics.jsonl that the run wrote."""

import json
import sys

# Heading, key of the summary record, and how to print its value.
COLUMNS = [
    ("ranks", "ranks", "{:d}"),
    ("epochs", "epochs", "{:d}"),
    ("seconds", "seconds", "{:.1f}"),
    ("images/s", "samples_per_s", "{:,.0f}"),
    ("loss", "loss", "{:.4f}"),
    ("held-out accuracy", "accuracy", "{:.2%}"),
]


def table(lines):
    """The table of the last summary among the lines of a metrics file."""
    records = [json.loads(line) for line in lines if line.strip()]
    summaries = [record for record in records if record.get("event") == "summary"]
    if not summaries:
        raise ValueError("there is no summary record: the run did not finish.")
    absent = [key for _, key, _ in COLUMNS if summaries[-1].get(key) is None]
    if absent:
        raise ValueError(f"the summary record has no value for {', '.join(absent)}.")
    cells = [(heading, form.format(summaries[-1][key])) for heading, key, form in COLUMNS]
    widths = [max(map(len, cell)) for cell in cells]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths)) for row in zip(*cells))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: demo_table.py METRICS_FILE")
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            print("\n" + table(file))
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    print("\nNext, the same training on one rank:  LIBTRAIN_RANKS=1 scripts/demo.sh")


if __name__ == "__main__":
    main()
