"""A job whose losses tell whether it has trained with its own ranks: they differ from seed to seed."""

import json

import jobs

TIME_LIMIT_S = 120


def command(output, seed):
    return [jobs.program("digits"), "--data", jobs.ROOT / "examples/digits/data", "--quiet", "--epochs", 1, "--seed", seed,
            "--output", output, "--timeout", 60]


def losses_in(output):
    records = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["event"] == "epoch"]


def seeds_of(pair):
    """Two that differ, the same every twelve pairs."""
    return pair % 4, 4 + pair % 3
