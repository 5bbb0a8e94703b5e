#!/usr/bin/env python3
"""usage: scripts/run_tests.py BUILD_TREE [option of ctest]...

Runs ctest and lists, before its summary, what was skipped: tests that skip themselves (GoogleTest, unittest, exit
code 77), disabled tests, and test programs that ran no test. A skip that tests/skips.txt does not allow fails the run.
"""

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = ROOT / "tests/skips.txt"
# CMake 4.3 and later omit the number of failed tests if it is 0.
SUMMARY = re.compile(r"(\d+)% tests passed(?:, (\d+) tests failed)? out of (\d+)")
NO_REASON = "no reason given"

# A reason is the line after "Skipped" of GoogleTest, or the text that unittest -v quotes; the totals count all skips.
REASONS = [re.compile(r"^[^\n]*: Skipped\n(.*)$", re.MULTILINE), re.compile(r"\bskipped (?:'(.*)'|\"(.*)\")$", re.MULTILINE)]
TOTALS = [re.compile(r"^\[  SKIPPED \] (\d+) tests?\.$", re.MULTILINE),
          re.compile(r"^OK \(.*\bskipped=(\d+).*\)$", re.MULTILINE)]
DISABLED = re.compile(r"^ *YOU HAVE (\d+) DISABLED TESTS?$", re.MULTILINE)
EMPTY = re.compile(r"^\[==========\] 0 tests from|^Ran 0 tests in ", re.MULTILINE)


def skips_in(output):
    """The reasons in a program's output, one per skipped test."""
    # Without the colours of a terminal, also as ctest's JUnit file writes them.
    output = re.sub(r"(?:\x1b|\[NON-XML-CHAR-0x1B\])\[[0-9;]*m", "", output)
    reasons = []
    for reason, total in zip(REASONS, TOTALS):
        found = ["".join(filter(None, match.groups())).strip() or NO_REASON for match in reason.finditer(output)]
        count = sum(int(match[1]) for match in total.finditer(output))
        reasons += found + [NO_REASON] * (count - len(found))
    reasons += [f"{match[1]} disabled" for match in DISABLED.finditer(output)]
    if EMPTY.search(output) and not reasons:
        reasons.append("the program ran no test")
    return reasons


def skips_of(case):
    """The same for a test of ctest, given as an element of its JUnit file."""
    output = case.findtext("system-out", "").strip()
    if case.get("status") == "disabled":
        return ["disabled in ctest"]
    if case.find("skipped") is not None:
        return [output.splitlines()[-1] if output else NO_REASON]
    return skips_in(output)


@dataclass(frozen=True)
class Rule:
    test: str
    reason: str
    condition: str

    def covers(self, test, reason):
        return fnmatchcase(test, self.test) and self.reason in reason


def read_rules(path):
    rules = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ", 2)]
        if len(fields) != 3 or not all(fields):
            sys.exit(f"{path}:{number}: expected 'test | reason | condition', found: {line}")
        rules.append(Rule(*fields))
    return rules


class Allowed:
    def __init__(self, rules, tree):
        self._rules = rules
        self._tree = tree
        self._known = {}

    def __contains__(self, skip):
        return any(rule.covers(*skip) and self._holds(rule.condition) for rule in self._rules)

    def _holds(self, condition):
        if condition not in self._known:
            self._known[condition] = subprocess.run(["bash", "-c", condition], cwd=ROOT, stdin=subprocess.DEVNULL,
                                                    env=os.environ | {"tree": str(self._tree)}, capture_output=True,
                                                    check=False).returncode == 0
        return self._known[condition]


def print_skips(title, skips):
    if skips:
        print(f"\n{title}")
        for (test, reason), count in sorted(skips.items()):
            print(f"  {test}: {reason}{f' ({count} times)' if count > 1 else ''}")


def count_as_failures(summary, more):
    """ctest's summary with that many passed tests counted as failed."""
    def counted(match):
        failed, total = int(match[2] or 0) + more, int(match[3])
        return f"{100 * max(total - failed, 0) // max(total, 1)}% tests passed, {failed} tests failed out of {total}"
    return SUMMARY.sub(counted, summary, count=1)


def run_ctest(tree, options, report):
    """Prints ctest's output up to its summary; returns the summary and the exit code."""
    command = ["ctest", "--test-dir", str(tree), "--output-junit", str(report),
               "--test-output-size-passed", str(1 << 30), "--test-output-size-failed", str(1 << 30), *options]
    # The wheels come without bytecode, and compiling torch's takes longer than many tests.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tree / "pycache")
    summary = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=environment) as process:
        for line in process.stdout:
            if summary or SUMMARY.match(line):
                summary += line
            else:
                print(line, end="", flush=True)
    return summary, process.returncode


def main(tree, options):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        summary, exit_code = run_ctest(tree, options, report)
        if not summary:
            return exit_code  # the options did not ask ctest to run tests, or ctest could not
        if not report.exists():
            sys.exit(f"{summary}\nctest wrote no report to {report}, so the skipped tests are unknown.")
        cases = xml.parse(report).getroot().iter("testcase")
        skips = {case: Counter(skips_of(case)) for case in cases}
    allowed = Allowed(read_rules(ALLOWED), tree)
    listed, unlisted, failed = Counter(), Counter(), set()
    for case, reasons in skips.items():
        name = case.get("name")
        for reason, count in reasons.items():
            is_allowed = (name, reason) in allowed
            (listed if is_allowed else unlisted)[name, reason] += count
            if not is_allowed and case.get("status") != "fail":
                failed.add(name)
    print_skips("Skipped, as tests/skips.txt allows here:", listed)
    print_skips("Skipped, which tests/skips.txt does not allow here; counted as failed:", unlisted)
    print("\n" + count_as_failures(summary, len(failed)), end="")
    return exit_code or (1 if unlisted else 0)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("--help", "-h"):
        print(__doc__.strip())
        sys.exit(0 if len(sys.argv) > 1 else 2)
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
