"""A run that writes checkpoints is killed at every call that changes its folder, or that call fails: the newest complete
checkpoint is found, the older ones are as they were, and the next run goes on.

The program writes the checkpoints of three steps and keeps two; tests/support/faulty_disk.cpp disturbs it.
"""

import os
import re
import shutil
import signal
import unittest
from pathlib import Path

from checkpoint_jobs import jobs, run, show

STEPS = (100, 200, 300)
BYTES = 1_200_000  # more than the writer's buffer
LEFTOVER = re.compile(r"^step-\d{8}\.[0-9a-f]{16}\.(partial|removed)$")


def commands(root, steps=STEPS, size=BYTES):
    return [f"open {root} run-1 2", *(f"save {step} {size}" for step in steps)]


def committed(answers):
    return [step for step, answer in zip((None, *STEPS), answers) if step and answer.startswith("ok")]


def leftovers(root):
    return [name for name in os.listdir(root) if LEFTOVER.match(name)] if root.exists() else []


class CrashPoints(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def calls(self, size=BYTES):
        """The calls of an undisturbed run, as (name, result, paths)."""
        root = self.folder / f"counted-{size}"
        log = self.folder / f"log-{size}"
        if not log.exists():
            answers, warnings, code = run(commands(root, size=size), root=root, log=log)
            self.assertEqual((code, warnings, committed(answers)), (0, [], [*STEPS]), answers)
            self.assertEqual(show(root), ([200, 300], 300, 0))
        return [line.split() for line in log.read_text().splitlines()]

    def require_intact(self, root, answers):
        """What is listed is undamaged; of the last two that are complete, those that were committed are listed."""
        steps, newest, damaged = show(root)
        self.assertEqual((newest, damaged), (steps[-1] if steps else -1, 0))
        done = committed(answers)
        last = sorted({*done, *steps})[-2:]
        self.assertLessEqual({*done} & {*last}, {*steps}, (done, steps))

    def require_next_run_goes_on(self, root):
        _, newest, _ = show(root)
        answers, warnings, code = run([f"open {root} run-1,run-2 2", "save 400 1000"])
        self.assertEqual((code, warnings, len(answers)), (0, [], 2))
        self.assertTrue(all(answer.startswith("ok") for answer in answers), answers)
        steps, after, damaged = show(root)
        self.assertEqual((after, damaged), (400, 0))
        if newest >= 0:
            self.assertIn(newest, steps)
        self.assertLessEqual(len(steps), 2)
        self.assertEqual(leftovers(root), [])

    def at_each_call(self, action, check, size=BYTES):
        """Runs the program once for each call that `action` disturbs, and once undisturbed; `check` gets the folder,
        whether it was disturbed, the answers, the warnings and the exit code."""
        count = len(self.calls(size))
        self.assertGreater(count, 40)
        for at in range(1, count + 2):
            root = self.folder / f"{action}-{size}-{at}"
            with self.subTest(action, at=at, size=size):
                check(root, at <= count, *run(commands(root, size=size), root=root, at=at, action=action))
                self.require_next_run_goes_on(root)
            shutil.rmtree(root, ignore_errors=True)

    def test_killed_at_each_call(self):
        def check(root, is_disturbed, answers, warnings, code):
            self.assertEqual((code, warnings), (-signal.SIGKILL if is_disturbed else 0, []))
            self.assertTrue(all(answer.startswith("ok") for answer in answers), answers)
            self.require_intact(root, answers)

        self.at_each_call("kill", check)
        self.at_each_call("kill", check, size=0)
        self.at_each_call("torn", check)

    def test_each_call_fails_once(self):
        for action, reason in (("EIO", "Input/output error"), ("ENOSPC", "No space left on device")):
            messages = []

            def check(root, is_disturbed, answers, warnings, code, reason=reason, messages=messages):
                self.assertEqual(code, 0)
                errors = [answer for answer in answers if answer.startswith("error")]
                if errors and answers[0] == errors[0]:
                    self.assertEqual(errors[1:], ["error open has failed."] * len(STEPS))
                    errors = errors[:1]
                self.assertEqual(len(errors) + len(warnings), int(is_disturbed), (answers, warnings))
                for message in errors + warnings:
                    messages.append(message)
                    self.assertIn(reason, message)
                    self.assertIn(str(root), message)
                    self.assertRegex(message, r"\. [A-Z][^.]*\.$")  # what to do
                self.require_intact(root, answers)
                if errors:
                    self.assertEqual(leftovers(root), [])

            self.at_each_call(action, check)
            self.assertGreater(len(messages), 40)

    def test_the_disk_fails_from_each_call_on(self):
        def check(root, is_disturbed, answers, _, code):
            self.assertEqual(code, 0)
            if is_disturbed and not answers[-1].startswith("error"):
                self.assertEqual(committed(answers), [*STEPS])  # only the removal of the first has failed
            self.require_intact(root, answers)

        self.at_each_call("dead", check)

    def test_short_writes_change_nothing(self):
        def check(root, _, answers, warnings, code):
            self.assertEqual((code, warnings, committed(answers)), (0, [], [*STEPS]))
            self.assertEqual(show(root), ([200, 300], 300, 0))

        self.at_each_call("short", check)

    def test_nothing_gets_its_name_before_it_is_on_the_disk(self):
        """After a power failure only what was synced is there: the order of the calls decides."""
        unsynced = set()  # files with bytes, and folders with names, that are not on the disk
        removed = set()
        complete = 0
        for call, result, *paths in self.calls():
            self.assertGreaterEqual(int(result), 0)
            folder = str(Path(paths[0]).parent)
            if call in ("open", "mkdir"):
                unsynced |= {paths[0], folder}
            elif call in ("write", "ftruncate"):
                unsynced.add(paths[0])
            elif call == "fsync":
                unsynced.discard(paths[0])
            elif call == "rename" and paths[0].endswith(".partial"):
                self.assertEqual([path for path in unsynced if path.startswith(paths[0])], [])
                complete += 1
                unsynced.add(folder)
            elif call == "rename":
                self.assertRegex(paths[1], r"\.removed$")
                self.assertNotIn(folder, unsynced)  # the newer one has its name on the disk
                self.assertEqual(complete, len(STEPS))
                removed.add(paths[1])
            else:
                self.assertEqual(call, "unlink")
                self.assertTrue(paths[0] in removed or folder in removed, paths)
        self.assertEqual((complete, len(removed)), (len(STEPS), 1))


if __name__ == "__main__":
    jobs.require_programs("checkpoint_program", "libfaulty_disk.so")
    unittest.main()
