"""Attacks of another user of the machine, and of another host, on a job whose ranks connect over TCP.

The attackers have their own implementation of libtrain's protocol, so that they get as far as any process can.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs
import ranks
import sockets

NOBODY = 65534
SECRET = "a secret of this test's own"
# What all attackers share. They become another user, who may not be able to run this Python.
ATTACKER = r"""
import hashlib, hmac, os, socket, struct, sys, time
"what another user may not load".encode("idna")
HOST, PORT, JOB, USER = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if USER: os.setgroups([]); os.setgid(USER); os.setuid(USER)

def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()

def open_key(job):
    return mac(bytes(32), b"libtrain secret of job " + job.encode())

def fingerprint(key):
    return mac(key, b"libtrain fingerprint")[:8]

def hello(job, rank=1, world_size=2, key=None, channel=2):
    group = mac(bytes(32), b"libtrain name of job " + job.encode())[:16]
    return (struct.pack("<Q", 0x326e696172746c54) + group + struct.pack("<4I", rank, 0, world_size, channel) + bytes(8) +
            fingerprint(key or open_key(job)) + os.urandom(32))

def connect():
    return socket.create_connection((HOST, PORT), timeout=5)

def answer(stranger, most=1 << 20):
    stranger.settimeout(3)
    got = b""
    try:
        while len(got) < most and (part := stranger.recv(4096)):
            got += part
    except OSError:
        pass
    return got

def report(*words):
    print(*words, flush=True)
"""

ATTACKS = {
    # 1, 3, 8: an earlier store gave keys to any process, and let it write and delete.
    "asks the store": r"""
for words in (b"\x02" + struct.pack("<Q", 16) + b"/libtrain/rank 0", b"\x09\xd1\x5e\x3c\x85", b"\x07" + bytes(64)):
    stranger = connect(); stranger.sendall(words + bytes(200)); report("answer", len(answer(stranger)))
""",
    # 2: joins as rank 1 with everything that can be known without the secret.
    "joins": r"""
for key in (open_key(JOB), os.urandom(32)):
    stranger = connect(); words = hello(JOB, key=key); stranger.sendall(words); got = answer(stranger, 64)
    if not got.startswith(b"refused"):
        stranger.sendall(mac(key, b"libtrain caller " + words + got[:32])); got = answer(stranger, 1)
        report("welcome" if got else "dropped")
    else: report("refused")
""",
    # 2: ignores rank 0's proof and sends one of its own.
    "claims to have proven": r"""
stranger = connect(); stranger.sendall(hello(JOB, key=os.urandom(32)) + bytes(32)); got = answer(stranger)
report("welcome" if len(got) > 64 else "dropped")
""",
    # 5: closes before the answer.
    "hangs up": r"""
for _ in range(200):
    stranger = connect(); stranger.sendall(hello(JOB))
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); stranger.close()
report("done")
""",
    # 6: more idle connections than rank 0 may have descriptors.
    "idles": r"""
idle = []
for _ in range(1200):
    try: idle.append(connect())
    except OSError: break
report("done"); time.sleep(60)
""",
    # 7: endless messages, and answers that are not read.
    "floods": r"""
for _ in range(40):
    stranger = connect(); stranger.settimeout(1)
    try:
        for _ in range(64): stranger.sendall(b"\x01" * (1 << 20))
    except OSError: pass
report("done")
""",
    # 8: half a greeting, another protocol, another job, impossible ranks.
    "talks nonsense": r"""
for words in (b"GET / HTTP/1.0\r\n\r\n" * 20, hello(JOB)[:40], hello("another job"), hello(JOB, rank=0), hello(JOB, rank=99),
              hello(JOB, world_size=1 << 31), hello(JOB, channel=0), b"\xff" * (1 << 16)):
    stranger = connect()
    try: stranger.sendall(words)
    except OSError: pass
    answer(stranger, 64)
report("done")
""",
}


def needs_other_users(test):
    if os.geteuid() != 0:
        test.skipTest("only root can run a test as another user")


BECOME_NOBODY = f"import os, socket, sys, time; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"


class Strangers(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.port = sockets.free_port()
        self.job = "the job of this test"

    def start(self, rank, *options, host="127.0.0.1", prefix=(), environment=None):
        command = [*prefix, jobs.program("fault_program"), "--dist-url", f"tcp://{host}:{self.port}", "--output",
                   self.folder / "output", "--timeout", 40, *options]
        variables = {"LIBTRAIN_JOB_ID": self.job, "HOME": str(self.folder), "RANK": str(rank),
                     "WORLD_SIZE": "2"} | (environment or {})
        process, = ranks.start(self, [command], [variables])
        return process

    def attack(self, script, host="127.0.0.1", prefix=(), user=NOBODY):
        process = subprocess.Popen([*prefix, sys.executable, "-c", ATTACKER + script, host, str(self.port), self.job,
                                    str(user)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def require_success(self, processes):
        ends = ranks.wait(processes)
        for rank, end in enumerate(ends):
            self.assertEqual(end.exit_code, 0, f"rank {rank}: {end}")
        records = [json.loads(line) for line in (self.folder / "output/metrics.jsonl").read_text().splitlines()]
        self.assertEqual((records[-1]["event"], records[-1]["ranks"]), ("summary", 2))
        return ends

    def wait_for_listener(self, process, host="127.0.0.1"):
        def listens():
            """rank 0 listens"""
            self.assertIsNone(process[0].poll(), "rank 0 has ended")
            return any(one.listens and one.local == f"{host}:{self.port}" for one in sockets.sockets_of(process[0].pid))
        jobs.wait_until(listens)

    def memory_of(self, process):
        status = Path(f"/proc/{process[0].pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


class WhileRanksMeet(Strangers):
    def check(self, attack):
        needs_other_users(self)
        first = self.start(0)
        self.wait_for_listener(first)
        memory = self.memory_of(first)
        attacker = self.attack(ATTACKS[attack])
        answer = attacker.stdout.readline().strip()
        grown = self.memory_of(first) - memory
        ends = self.require_success([first, self.start(1)])
        self.assertLess(grown, 32 << 20)
        self.assertNotIn("Traceback", ends[0].stderr)
        self.assertLessEqual(ends[0].stderr.count("Dropped a connection"), 1, ends[0].stderr)
        return answer

    def test_nobody_serves_a_store(self):
        self.assertEqual(self.check("asks the store"), "answer 0")

    def test_a_stranger_cannot_join(self):
        self.assertEqual(self.check("joins"), "refused")

    def test_a_stranger_cannot_pretend_to_have_proven(self):
        self.assertEqual(self.check("claims to have proven"), "dropped")

    def test_connections_that_end_early_end_nothing(self):
        self.assertEqual(self.check("hangs up"), "done")

    def test_idle_connections_take_no_descriptors(self):
        self.assertEqual(self.check("idles"), "done")

    def test_floods_take_no_memory(self):
        self.assertEqual(self.check("floods"), "done")

    def test_nonsense_ends_nothing(self):
        self.assertEqual(self.check("talks nonsense"), "done")

    def test_all_at_once(self):
        needs_other_users(self)
        first = self.start(0)
        self.wait_for_listener(first)
        for attack in ATTACKS.values():
            self.attack(attack)
        time.sleep(1)
        self.require_success([first, self.start(1)])

    def test_the_secret_is_readable_to_its_user_alone(self):
        needs_other_users(self)
        self.require_success([self.start(0), self.start(1)])
        secret = self.folder / ".config/libtrain/secret"
        self.folder.chmod(0o755)
        self.assertEqual(secret.stat().st_mode & 0o777, 0o600)
        read = subprocess.run(["cat", secret], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
                              check=False)
        self.assertIn("Permission denied", read.stderr)

    def test_the_secret_is_in_no_log_and_no_file(self):
        environment = {"LIBTRAIN_SECRET": SECRET, "LIBTRAIN_LOG": "debug"}
        ends = self.require_success([self.start(rank, environment=environment) for rank in range(2)])
        written = [end.stderr for end in ends] + [path.read_text() for path in (self.folder / "output").iterdir()]
        self.assertFalse([text for text in written if SECRET in text])


class AnotherHost(Strangers):
    """Network namespaces stand for hosts. The job's ranks are on two of them, the stranger on the second one, too."""

    def setUp(self):
        super().setUp()
        self.hosts = [f"libtrain-{os.getpid()}-{name}" for name in "st"]
        cables = [f"ls{os.getpid()}{name}" for name in "ab"]
        if shutil.which("ip") is None or self.ip("netns", "add", self.hosts[0]) != 0:
            self.skipTest("not run: network namespaces need the command ip and root")
        self.addCleanup(self.ip, "netns", "del", self.hosts[0])
        self.assertEqual(self.ip("netns", "add", self.hosts[1]), 0)
        self.addCleanup(self.ip, "netns", "del", self.hosts[1])
        self.ip("link", "add", cables[0], "netns", self.hosts[0], "type", "veth", "peer", "name", cables[1], "netns",
                self.hosts[1])
        for number, (host, cable) in enumerate(zip(self.hosts, cables)):
            self.ip("-n", host, "addr", "add", f"10.78.0.{number + 1}/24", "dev", cable)
            for device in (cable, "lo"):
                self.assertEqual(self.ip("-n", host, "link", "set", device, "up"), 0)

    @staticmethod
    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True, check=False).returncode

    def start_on(self, rank, environment):
        place = self.hosts[rank]
        return self.start(rank, host="10.78.0.1", prefix=["ip", "netns", "exec", place],
                          environment={"LIBTRAIN_HOST": place} | environment)

    def wait_until_reachable(self):
        def reached():
            """rank 0 listens"""
            return subprocess.run(["ip", "netns", "exec", self.hosts[1], sys.executable, "-c",
                                   f"import socket; socket.create_connection(('10.78.0.1', {self.port}), timeout=1)"],
                                  capture_output=True, check=False).returncode == 0
        jobs.wait_until(reached)

    def attack_from_there(self, attack):
        return self.attack(ATTACKS[attack], host="10.78.0.1", prefix=["ip", "netns", "exec", self.hosts[1]], user=0)

    def test_with_a_secret_that_all_hosts_have_strangers_are_turned_away(self):
        environment = {"LIBTRAIN_SECRET": SECRET}
        first = self.start_on(0, environment)
        self.wait_until_reachable()
        self.assertEqual(self.attack_from_there("joins").stdout.readline().strip(), "refused")
        for attack in ATTACKS:
            self.attack_from_there(attack)
        time.sleep(1)
        self.require_success([first, self.start_on(1, environment)])

    def test_a_rank_with_another_secret_is_told_what_to_do(self):
        first = self.start_on(0, {"LIBTRAIN_SECRET": SECRET})
        second, = ranks.wait([self.start_on(1, {"LIBTRAIN_SECRET": SECRET + "!"})])
        self.assertEqual(second.exit_code, 3, second)
        self.assertIn("has a different job secret", second.stderr)
        self.assertIn("set LIBTRAIN_SECRET to the same", second.stderr)
        self.assertIsNone(first[0].poll())

    def test_without_a_common_secret_the_risk_is_told(self):
        homes = [self.folder / name for name in "ab"]
        for home in homes:
            home.mkdir()
        ends = self.require_success([self.start_on(rank, {"HOME": str(home)}) for rank, home in enumerate(homes)])
        self.assertIn("Rank 0 and rank 1 on other hosts have no common secret", ends[0].stderr)
        self.assertNotIn("Dropped", ends[0].stderr)
        self.assertIn("LIBTRAIN_SECRET", ends[0].stderr)

    def test_encryption_takes_a_common_secret(self):
        homes = [self.folder / name for name in "ab"]
        for home in homes:
            home.mkdir()
        first, second = [self.start_on(rank, {"HOME": str(home), "LIBTRAIN_ENCRYPTION": "on"})
                         for rank, home in enumerate(homes)]
        second, = ranks.wait([second])
        self.assertEqual(second.exit_code, 3, second)
        self.assertIn("has a different job secret", second.stderr)
        self.assertIn("set LIBTRAIN_SECRET to the same", second.stderr)
        self.assertIsNone(first[0].poll())


class WhileRanksTrain(Strangers):
    def running_job(self, *options, environment=None):
        note = self.folder / "note"
        processes = [self.start(rank, "--fault", "hang-before", "--note", note, *options, environment=environment)
                     for rank in range(2)]
        jobs.wait_until(note.exists)
        return processes

    def as_nobody(self, script, *words):
        return subprocess.run([sys.executable, "-c", BECOME_NOBODY + script, *map(str, words)], capture_output=True, text=True, cwd="/",
                              timeout=30, check=False)

    def test_nothing_listens_and_nothing_is_readable(self):
        needs_other_users(self)
        processes = self.running_job()
        for process, _ in processes:
            self.assertEqual([one for one in sockets.sockets_of(process.pid) if one.kind.startswith("tcp") and one.listens],
                             [])
            for name in ("fd", "mem", "environ", "map_files"):
                read = self.as_nobody("p = sys.argv[1]; print(os.listdir(p) if os.path.isdir(p) else "
                                      "open(p, 'rb').read(1))", f"/proc/{process.pid}/{name}")
                self.assertIn("PermissionError", read.stderr, name)
            shared = [target for target in map(os.readlink, Path(f"/proc/{process.pid}/fd").iterdir())
                      if "memfd:libtrain" in target]
            modes = {os.stat(f"/proc/{process.pid}/fd/{name}").st_mode & 0o777 for name in os.listdir(
                f"/proc/{process.pid}/fd") if "memfd:libtrain" in os.readlink(f"/proc/{process.pid}/fd/{name}")}
            self.assertLessEqual(modes, {0o600}, shared)

    def test_requests_of_others_write_no_dumps(self):
        needs_other_users(self)
        processes = self.running_job()
        names = {one.local for process, _ in processes for one in sockets.sockets_of(process.pid) if one.kind == "unix"}
        asked = self.as_nobody(
            "for name in sys.argv[1:]:\n for words in (b'', b'?', b'??'):\n"
            "  s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(words, '\\0' + name[1:])\nprint('asked')", *names)
        self.assertEqual((asked.stdout.strip(), len(names)), ("asked", 2), asked)
        time.sleep(0.5)
        self.assertEqual(list((self.folder / "output").glob("collectives*")), [])
        # Requests of this user still work: when rank 1 is killed, rank 0 writes its dump.
        processes[1][0].kill()
        end, = ranks.wait(processes[:1])
        self.assertIn("rank 1", end.stderr)
        self.assertTrue((self.folder / "output/collectives.rank0.txt").exists())

    def test_a_failure_is_told_though_another_user_has_taken_the_right_to(self):
        needs_other_users(self)
        taken = "slurm 4711 0"
        squatter = subprocess.Popen(
            [sys.executable, "-c", BECOME_NOBODY +
             "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
             " for name in sys.argv[1:]:\n"
             "  s = socket.socket(socket.AF_UNIX, kind); s.bind('\\0' + name)\n"
             "  if kind == socket.SOCK_STREAM: s.listen(100)\n"
             "  globals()[name + str(kind)] = s\nprint('taken', flush=True); time.sleep(60)",
             f"libtrain {os.geteuid()} report {taken}"],
            stdout=subprocess.PIPE, text=True, cwd="/")
        self.addCleanup(squatter.communicate)
        self.addCleanup(squatter.kill)
        self.assertEqual(squatter.stdout.readline().strip(), "taken")
        environment = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}
        options = ("--fault", "throw", "--at-rank", 1)
        ends = ranks.wait([self.start(rank, *options, environment=environment) for rank in range(2)])
        self.assertIn("The disk caught fire", ends[1].stderr)

    def test_dumps_follow_no_links(self):
        victim = self.folder / "victim"
        victim.write_text("precious")
        victim.chmod(0o600)
        output = self.folder / "output"
        output.mkdir()
        processes = self.running_job()
        for rank, (process, _) in enumerate(processes):
            for name in (f"collectives.rank{rank}.txt", f"collectives.rank{rank}.txt.partial-{process.pid}"):
                (output / name).symlink_to(victim)
        processes[1][0].send_signal(signal.SIGKILL)
        ranks.wait(processes[:1])
        self.assertEqual(victim.read_text(), "precious")
        self.assertFalse((output / "collectives.rank0.txt").is_symlink())


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
