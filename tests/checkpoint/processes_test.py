"""Checkpoints of several processes: two runs in one folder, ranks that are killed, disks that are full or read-only."""

import os
import re
import socket
import subprocess
import time
import unittest

from checkpoint_jobs import Process, jobs, run, show

BYTES = 1_200_000


def names(root):
    return sorted(name for name in os.listdir(root) if name != "lock")


class Processes(unittest.TestCase):
    def setUp(self):
        self.root = jobs.temporary_directory(self) / "checkpoints"

    def refuse(self, answer, *words):
        """An error of one sentence and one of advice."""
        self.assertRegex(answer, r"^error .*[.] [A-Z][^.]*[.]$")
        for word in words:
            self.assertIn(str(word), answer)

    def test_the_second_of_two_runs_is_refused_until_the_first_has_ended(self):
        with Process() as first:
            first.tell(f"open {self.root} run-1 2")
            first.tell(f"save 1 {BYTES}")
            first.tell("begin 2")
            first.tell(f"half model.bin {BYTES}")
            before = names(self.root)
            (answer, *_), warnings, _ = run([f"open {self.root} run-2 2"])
            self.refuse(answer, f"Another run (run run-1, process {first.process.pid} on {socket.gethostname()}, since ",
                        time.strftime("since %Y-", time.gmtime()), f"is writing checkpoints to '{self.root}'",
                        "Wait until that run has ended")
            self.assertEqual((names(self.root), warnings), (before, []))
            self.assertEqual(show(self.root), ([1], 1, 0))  # to read needs no lock
        # It was killed. What it left goes, what it completed stays.
        answers, warnings, code = run([f"open {self.root} run-1,run-2 2", f"save 2 {BYTES}"])
        self.assertEqual((code, warnings), (0, []), answers)
        self.assertEqual(names(self.root), ["step-00000001", "step-00000002"])
        self.assertEqual(show(self.root), ([1, 2], 2, 0))

    def test_two_ranks_write_one_checkpoint(self):
        with Process() as first, Process() as second:
            first.tell(f"open {self.root} run-1 2")
            begun = first.tell("begin 1")
            second.tell(f"join {self.root} {begun} 1")
            entries = second.tell(f"write shard-1 {BYTES}")
            first.tell(f"write shard-0 {BYTES}")
            first.tell(f"commit {entries}")
        self.assertEqual(show(self.root), ([1], 1, 0))
        self.assertEqual(sorted(os.listdir(self.root / "step-00000001")), ["manifest.json", "shard-0", "shard-1"])

    def test_a_rank_that_is_killed_harms_no_checkpoint(self):
        with Process() as first, Process() as second:
            first.tell(f"open {self.root} run-1 2")
            first.tell(f"save 1 {BYTES}")
            begun = first.tell("begin 2")
            second.tell(f"join {self.root} {begun} 2")
            second.tell(f"half shard-1 {BYTES}")
            first.tell(f"write shard-0 {BYTES}")
            second.process.kill()
            second.process.wait()
            # Whatever rank 0 does now, the half file is in no checkpoint.
            self.refuse(first.ask("commit"), "shard-1")
            self.assertEqual(names(self.root), ["step-00000001"])
            first.tell(f"save 3 {BYTES}")
        self.assertEqual(show(self.root), ([1, 3], 3, 0))

    def test_a_rank_of_a_killed_run_harms_no_later_one(self):
        with Process() as second:
            with Process() as first:
                first.tell(f"open {self.root} run-1 2")
                begun = first.tell("begin 1")
                second.tell(f"join {self.root} {begun} 1")
                second.tell(f"half shard-1 {BYTES}")
            with Process() as later:
                later.tell(f"open {self.root} run-2 2")
                begun_later = later.tell("begin 1")
                self.assertNotEqual(begun, begun_later)
                self.refuse(second.ask(f"write shard-2 {BYTES}"), begun, "No such file or directory")
                later.tell(f"write model.bin {BYTES}")
                later.tell("commit")
        self.assertEqual(show(self.root), ([1], 1, 0))
        self.assertEqual(names(self.root), ["step-00000001"])

    def on_disk(self, script):
        """Runs the bash script in `self.root`, which is a disk of 4 MiB; what it prints."""
        self.root.mkdir()
        start = f'mount -t tmpfs -o size=4m tmpfs "{self.root}" || exit 77; cd "{self.root}"; {script}'
        done = subprocess.run(["unshare", "--mount", "--map-root-user", "bash", "-c", start], text=True,
                              capture_output=True, timeout=60,
                              env=os.environ | {"program": jobs.program("checkpoint_program")})
        if done.returncode in (1, 77) and re.search("^(unshare|mount):", done.stderr):
            self.skipTest("this environment mounts no tmpfs")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_a_full_disk_harms_no_checkpoint(self):
        # Two checkpoints take 2 * 1.2 MB; of a third, 1.2 MB are too much. Without the first there is room again.
        size = 400_000
        saved, *answers = self.on_disk(f'''
            printf "%s\\n" "open . run-1 5" "save 1 {size}" "save 2 {size}" "save 3 {size}" "save 4 {size}" \\
              "show ." | $program
            ls
            rm -r step-00000001
            printf "%s\\n" "open . run-1,run-2 5" "save 4 {size}" "show ." | $program''')
        self.assertEqual(saved, "ok ")
        full = [answer for answer in answers if answer.startswith("error")]
        self.assertEqual(len(full), 1, answers)
        self.refuse(full[0], "step-00000004", "No space left on device", "Free disk space")
        self.assertEqual(answers[4:9], ["ok 1 2 3 newest 3 damaged 0", "lock", "step-00000001", "step-00000002",
                                        "step-00000003"])
        self.assertEqual(answers[-1], "ok 2 3 4 newest 4 damaged 0")

    def test_a_full_disk_does_not_keep_the_next_run_from_making_room(self):
        size = 400_000
        answers = self.on_disk(f'''
            printf "%s\\n" "open . run-1 5" "save 1 {size}" "begin 2" "write model.bin {size}" | $program > /dev/null &&
            mkdir step-00000002.0123456789abcdef.partial
            dd if=/dev/zero of=step-00000002.0123456789abcdef.partial/model.bin bs=64k status=none 2> /dev/null
            df --output=avail . | tail -1
            printf "%s\\n" "open . run-1,run-2 5" "save 2 {size}" "show ." | $program''')
        self.assertEqual(answers[0].strip(), "0")
        self.assertEqual(answers[-1], "ok 1 2 newest 2 damaged 0")

    def test_a_read_only_folder_is_named_and_read(self):
        answers = self.on_disk('''
            printf "%s\\n" "open . run-1 5" "save 1 1000" | $program
            mount -o remount,ro tmpfs .
            printf "%s\\n" "open . run-2 5" "show ." | $program''')
        self.refuse(answers[2], "'./lock'", "Read-only file system", "Make the folder writable")
        self.assertEqual(answers[3], "ok 1 newest 1 damaged 0")


if __name__ == "__main__":
    jobs.require_programs("checkpoint_program")
    unittest.main()
