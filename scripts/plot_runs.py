#!/usr/bin/env python3
"""Draws the curves of runs from the metrics.jsonl that each of them wrote: one plot for each value, in which all runs
are compared, as a PNG and as a page that also has a table of the runs and their alerts.

usage: plot_runs.py [options] RUN...       RUN: a metrics.jsonl, or a folder that has one

Needs matplotlib. scripts/plot_runs.sh installs it beside the environments of scripts/setup.sh, and takes the same
arguments.
"""

import argparse
import html
import io
import json
import math
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

EVENTS = ("step", "epoch", "evaluation")  # whose values are curves
NO_CURVES = {"event", "time", "run_id", "step", "epoch"}


@dataclass
class Run:
    name: str
    began: float = 0.0
    config: dict = field(default_factory=dict)
    summary: dict = field(default_factory=dict)
    alerts: list = field(default_factory=list)
    curves: dict = field(default_factory=dict)  # {"evaluation/loss": [record, ...]}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def records_in(path):
    """The records of a file. A line that is none is named on standard error, and passed over."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict) or "event" not in record:
                    raise ValueError("it is not an object with an event")
                yield record
            except ValueError as error:
                print(f"plot_runs: {path}, line {number} is left out: {error}.", file=sys.stderr)


def read_runs(path):
    """The runs in a metrics.jsonl, which several may have written one after the other."""
    file = path / "metrics.jsonl" if path.is_dir() else path
    runs = {}
    for record in records_in(file):
        identifier = record.get("run_id", "")
        run = runs.setdefault(identifier, Run(str(path), began=record.get("time", 0.0)))
        event = record["event"]
        if event == "run":
            run.config = record.get("config", {})
        elif event == "summary":
            run.summary = {key: value for key, value in record.items() if is_number(value) and key not in NO_CURVES}
        elif event == "alert":
            run.alerts.append(f"step {record.get('step', '?')}: {record.get('message', '')}")
        elif event in EVENTS:
            for key, value in record.items():
                if key not in NO_CURVES and (is_number(value) or value is None):
                    run.curves.setdefault(f"{event}/{key}", []).append(record)
    if len(runs) > 1:
        for identifier, run in runs.items():
            run.name = f"{path} ({identifier})"
    return [run for run in runs.values() if run.curves or run.summary]


def points(run, name, axis):
    """Places and values of a curve. A value that was not finite is a gap. `axis` None: by step, or by epoch where
    records have no step or count it anew in each epoch."""
    records = run.curves[name]
    key = name.split("/", 1)[1]
    if axis is None:
        steps = [record.get("step") for record in records]
        axis = "step" if None not in steps and steps == sorted(steps) and len(set(steps)) == len(steps) else "epoch"
    if axis == "time":
        places = [record.get("time", 0.0) - run.began for record in records]
    else:
        places = [record.get(axis) for record in records]
        if None in places or len(set(places)) < len(places):
            places, axis = list(range(1, len(records) + 1)), "record"
    values = [math.nan if record[key] is None else record[key] for record in records]
    return places, values, "seconds" if axis == "time" else axis


def smoothed(values, span):
    """The mean of each value and the `span` - 1 before it that are numbers."""
    if span == 1:
        return values
    means = []
    for end in range(1, len(values) + 1):
        window = [value for value in values[max(end - span, 0):end] if not math.isnan(value)]
        means.append(sum(window) / len(window) if window else math.nan)
    return means


def draw(runs, names, axis, span):
    """A figure with one plot for each name."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure, plots = pyplot.subplots(rows, columns, figsize=(6.4 * columns, 3.6 * rows), squeeze=False,
                                    layout="constrained")
    for plot in plots.flat[len(names):]:
        plot.set_visible(False)
    for plot, name in zip(plots.flat, names):
        for number, run in enumerate(runs):
            if name not in run.curves:
                continue
            places, values, label = points(run, name, axis)
            plot.plot(places, smoothed(values, span), color=f"C{number % 10}", label=run.name, linewidth=1.2,
                      marker="." if len(places) < 30 else None)
            plot.set_xlabel(label)
        plot.set_title(name)
        plot.grid(alpha=0.3)
    if len(runs) > 1:
        handles = {label: handle for plot in plots.flat for handle, label in zip(*plot.get_legend_handles_labels())}
        figure.legend(handles.values(), handles.keys(), loc="outside upper center")
    return figure


def table(runs):
    """The configuration and the summary of every run as a table of HTML, with the rows in which they differ first."""
    rows = {}
    for number, run in enumerate(runs):
        for part in (run.config, run.summary):
            for key, value in part.items() if isinstance(part, dict) else ():
                rows.setdefault(key, [""] * len(runs))[number] = f"{value:.6g}" if isinstance(value, float) else value
    ordered = sorted(rows.items(), key=lambda row: len({str(cell) for cell in row[1]}) == 1)
    cell = "<{0}>{1}</{0}>".format
    head = cell("tr", "".join(cell("th", html.escape(text)) for text in ["", *(run.name for run in runs)]))
    body = (cell("tr", cell("th", html.escape(key)) + "".join(cell("td", html.escape(str(value))) for value in values))
            for key, values in ordered)
    return cell("table", head + "".join(body))


def page(runs, figure):
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg")
    svg = drawing.getvalue()
    alerts = "".join(f"<li>{html.escape(run.name)}, {html.escape(alert)}</li>" for run in runs for alert in run.alerts)
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Runs</title><style>'
            "body{font:14px sans-serif;margin:2em}svg{max-width:100%;height:auto}table{border-collapse:collapse}"
            "th,td{padding:2px 10px;border-bottom:1px solid #ddd;text-align:right}</style></head><body>\n"
            f"{svg[svg.index('<svg'):]}\n{'<h2>Alerts</h2><ul>' + alerts + '</ul>' if alerts else ''}\n"
            f"<h2>Runs</h2>\n{table(runs)}\n</body></html>\n")


def main():
    parser = argparse.ArgumentParser(description="Draws the curves of runs into a PNG and a page.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a metrics.jsonl, or a folder that has one")
    parser.add_argument("--output", type=Path, default=Path("curves"), help="writes OUTPUT.png and OUTPUT.html")
    parser.add_argument("--values", default="", metavar="REGEX", help="only values whose names match: evaluation/")
    parser.add_argument("--x", choices=("step", "epoch", "time"), help="default: step, or epoch without steps")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="means of N values")
    options = parser.parse_args()
    if options.smooth < 1:
        parser.error("--smooth must be at least 1.")
    try:
        wanted = re.compile(options.values)
    except re.error as error:
        parser.error(f"--values is not a regular expression: {error}.")
    try:
        runs = [run for path in options.runs for run in read_runs(path)]
        names = sorted({name for run in runs for name in run.curves if wanted.search(name)})
        if not names:
            sys.exit("plot_runs: no step, epoch or evaluation record has a value to draw. Check RUN and --values.")
        figure = draw(runs, names, options.x, options.smooth)
        png, page_file = (Path(f"{options.output}{suffix}") for suffix in (".png", ".html"))
        png.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(png, dpi=120)
        page_file.write_text(page(runs, figure), encoding="utf-8")
    except OSError as error:
        sys.exit(f"plot_runs: {error}.")
    except ImportError as error:
        sys.exit(f"plot_runs: {error}. Use scripts/plot_runs.sh, which installs matplotlib.")
    print(f"{png} and {page_file}: {len(names)} values of {len(runs)} runs")


if __name__ == "__main__":
    main()
