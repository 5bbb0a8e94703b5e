"""What a test program starts ends with it, also where ctest kills it."""

import os
import select
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs

SOON_S = 20
# Each process tells its number, and so does one of a session of its own, which no signal to a group reaches.
SLEEPERS = 'echo $$ >"$0"; setsid sh -c \'echo $$ >"$0"; exec sleep 600\' "$0" & exec sleep 600'
STARTERS = {
    "jobs.run": (2, "jobs.run(command)"),
    "jobs.run under mpirun": (4, "jobs.run(command, ranks=2)"),
    "ranks.start": (2, "ranks.wait(ranks.start(unittest.TestCase(), [command]), 600)"),
    "subprocess": (2, "subprocess.run(command)"),
}


class KilledTest(unittest.TestCase):
    def test_leaves_no_process_behind(self):
        for name, (count, start) in STARTERS.items():
            with self.subTest(name):
                numbers = jobs.temporary_directory(self) / "numbers"
                os.mkfifo(numbers)
                with open(numbers, "r+b", buffering=0) as told:
                    program = (f"import subprocess, sys, unittest; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                               f"import jobs, ranks; command = ['sh', '-c', {SLEEPERS!r}, {str(numbers)!r}]\n{start}")
                    test = subprocess.Popen([sys.executable, "-c", program])
                    handles = [os.pidfd_open(self.next_number(told)) for _ in range(count)]
                test.kill()
                test.wait()
                self.require_end(handles)

    def next_number(self, told):
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([told], [], [], SOON_S)
            self.assertTrue(ready, "a process did not start")
            line += told.read(1)
        return int(line)

    def require_end(self, handles):
        outliving = 0
        for handle in handles:
            if not select.select([handle], [], [], SOON_S)[0]:
                outliving += 1
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        self.assertEqual(outliving, 0, "processes outlive the test that started them")


if __name__ == "__main__":
    unittest.main()
