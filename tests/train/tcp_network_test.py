"""The network and the machine against a job that connects over TCP: unexpected connections, other jobs, two hosts."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs
import ranks
import sockets

COMMUNICATION = 4
ENVIRONMENT = 3
# Where a job ends by it. Ranks on a busy machine need some of it to start.
TIMEOUT_S = 8


def free_url():
    return f"tcp://127.0.0.1:{sockets.free_port()}"


class TcpNetwork(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def command(self, url, output, *options, timeout_s=60):
        return [jobs.program("fault_program"), "--dist-url", url, "--output", self.folder / output,
                "--timeout", timeout_s, *options]

    def require_success(self, ends, output, backend):
        for rank, end in enumerate(ends):
            self.assertEqual(end.exit_code, 0, f"rank {rank}: {end}")
        records = [json.loads(line) for line in (self.folder / output / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual((records[0]["backend"], records[-1]["ranks"]), (backend, len(ends)))


class OneHost(TcpNetwork):
    def test_a_port_that_is_taken_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            began = time.time()
            job = ranks.start(self, [self.command(f"tcp://127.0.0.1:{port}", "output", timeout_s=TIMEOUT_S)] * 2)
            first, second = ranks.wait(job)
        self.assertEqual(first.exit_code, ENVIRONMENT, first)
        self.assertIn(f"Port {port} at 127.0.0.1:{port} is in use", first.stderr)
        self.assertEqual(second.exit_code, COMMUNICATION, second)
        self.assertRegex(second.stderr,
                         f"Rank 0 did not accept a connection at tcp://127.0.0.1:{port} within .* .it does not answer")
        self.assertLess(second.ended - began, TIMEOUT_S + 7)

    def test_a_host_that_is_not_there_is_named(self):
        command = self.command("tcp://no-such-host.invalid:29511", "output", timeout_s=TIMEOUT_S)
        job = ranks.start(self, [command] * 2)
        for end in ranks.wait(job):
            self.assertEqual(end.exit_code, COMMUNICATION, end)
            self.assertIn("'no-such-host.invalid'", end.stderr)

    def test_strangers_do_not_disturb_a_job(self):
        port = sockets.free_port()
        over = threading.Event()
        met = []

        # Knocks at the rendezvous from before it opens until the job has ended: with garbage, and with nothing.
        def knock(words):
            visitors = []
            while not over.wait(0.02):
                try:
                    visitors.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                    visitors[-1].sendall(words)
                    met.append(words)
                except OSError:
                    continue
            for visitor in visitors:
                visitor.close()

        strangers = [threading.Thread(target=knock, args=(words,)) for words in (b"GET / HTTP/1.0\r\n\r\n" * 40, b"")]
        for stranger in strangers:
            stranger.start()
        try:
            job = []
            for rank in range(3):
                job += ranks.start(
                    self, [self.command(f"tcp://127.0.0.1:{port}", "output")],
                    [{"RANK": str(rank), "WORLD_SIZE": "3", "LIBTRAIN_SHARED_MEMORY": "off"}])
                # Rank 0 hears both before the last rank comes and the rendezvous closes.
                jobs.wait_until(lambda: set(map(bool, met)) == {True, False})
            ends = ranks.wait(job)
        finally:
            over.set()
            for stranger in strangers:
                stranger.join()
        self.require_success(ends, "output", "tcp")

    def test_two_jobs_at_once_both_finish(self):
        for shared_memory, backend in (("on", "shared_memory"), ("off", "tcp")):
            with self.subTest(shared_memory=shared_memory):
                environments = [{"LIBTRAIN_SHARED_MEMORY": shared_memory}] * 2
                both = [ranks.start(self, [self.command(free_url(), f"{backend}-{job}")] * 2, environments)
                        for job in range(2)]
                for number, job in enumerate(both):
                    self.require_success(ranks.wait(job), f"{backend}-{number}", backend)

    def test_two_jobs_at_one_port_keep_apart(self):
        # They differ only in their arguments. The second is refused, or connects after the first.
        with ThreadPoolExecutor(4) as pool:  # most of the time they wait
            for checked in [
                    pool.submit(self.require_two_jobs_apart, *pair) for pair in enumerate(sockets.free_ports(8))]:
                checked.result()

    def require_two_jobs_apart(self, pair, port):
        # The first ranks of both jobs, then the second ones, or each job as a whole.
        starts = [(job, rank) for rank in range(2) for job in range(2)] if pair % 2 else [
            (job, rank) for job in range(2) for rank in range(2)]
        ends = {}
        for job, rank in starts:
            command = self.command(f"tcp://127.0.0.1:{port}", f"{pair}-{job}", "--seed", job, timeout_s=2 * TIMEOUT_S)
            ends[job, rank], = ranks.start(self, [command], [{"RANK": str(rank), "WORLD_SIZE": "2"}])
        ends = dict(zip(ends, ranks.wait(list(ends.values()))))
        good = [job for job in range(2) if ends[job, 0].exit_code == 0]
        self.assertTrue(good, [str(end) for end in ends.values()])
        for job in range(2):
            both = [ends[job, rank] for rank in range(2)]
            if job in good:
                self.require_success(both, f"{pair}-{job}", "shared_memory")
            else:
                # Or the port became free after its rank 1 had given up.
                self.assertRegex(both[0].stderr,
                                 f"Port {port} at 127.0.0.1:{port} is in use|rank 1 of 2 did not connect", both[0])
                self.assertRegex(both[1].stderr, "Another process has already connected as rank 1|"
                                 "Rank 0 did not accept a connection at", both[1])

    def test_nothing_is_left_after_a_kill(self):
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(fault=fault.name):
                note = self.folder / f"note-{fault.name}"
                # A lost connection is noticed at once, a stopped rank at the deadline.
                timeout_s = 60 if fault == signal.SIGKILL else TIMEOUT_S
                job = ranks.start(self, [self.command(free_url(), fault.name, "--fault", "hang-before", "--note", note,
                                                      timeout_s=timeout_s)] * 2)
                jobs.wait_until(note.exists)
                running = jobs.processes_of_this_program()
                self.assertEqual(running, {process.pid for process, _ in job})
                memory = set.union(*map(sockets.shared_memory_of, running))
                names = {one.local for process in running for one in sockets.sockets_of(process) if one.kind == "unix"}
                self.assertGreater(len(memory), 2)
                self.assertEqual(len(names), 2)
                os.kill(job[1][0].pid, fault)
                survivor = ranks.wait(job[:1])[0]
                self.assertEqual(survivor.exit_code, COMMUNICATION, survivor)
                self.assertIn("rank 1", survivor.stderr)
                ranks.wait(job, time_limit=0)  # kills the one that is stopped
                self.assertEqual(jobs.processes_of_this_program(), set())
                self.assertEqual(names & sockets.unix_names(), set())
                # It has no name: only a process can keep it.
                for process in filter(str.isdigit, os.listdir("/proc")):
                    self.assertEqual(memory & sockets.shared_memory_of(process), set(), process)


    def test_ranks_of_separate_containers_are_told_why_they_use_tcp(self):
        apart = ["unshare", "--pid", "--fork", "--kill-child"]
        if shutil.which("unshare") is None or jobs.run([*apart, "true"]).exit_code != 0:
            self.skipTest("not run: PID namespaces need the command unshare and root")
        command = self.command(free_url(), "output")
        ends = ranks.wait(ranks.start(self, [command, [*apart, *command]]))
        self.require_success(ends, "output", "tcp")
        said = "Ranks 0 and 1 run on one machine but cannot share memory, because their PID namespaces differ"
        self.assertEqual([end.stderr.count(said) for end in ends], [1, 0], ends[0])


def run_ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


class TwoHosts(TcpNetwork):
    """Network namespaces stand for hosts: two addresses, two loopbacks, one cable."""

    def setUp(self):
        super().setUp()
        self.hosts = [f"libtrain-{os.getpid()}-{name}" for name in "ab"]
        self.cables = [f"lt{os.getpid()}{name}" for name in "ab"]
        if shutil.which("ip") is None or run_ip("netns", "add", self.hosts[0]).returncode != 0:
            self.skipTest("not run: network namespaces need the command ip and root")
        self.addCleanup(run_ip, "netns", "del", self.hosts[0])
        self.require(run_ip("netns", "add", self.hosts[1]))
        self.addCleanup(run_ip, "netns", "del", self.hosts[1])
        self.require(run_ip("link", "add", self.cables[0], "netns", self.hosts[0], "type", "veth",
                            "peer", "name", self.cables[1], "netns", self.hosts[1]))
        for number, (host, cable) in enumerate(zip(self.hosts, self.cables)):
            self.require(run_ip("-n", host, "addr", "add", f"10.77.0.{number + 1}/24", "dev", cable))
            for device in (cable, "lo"):
                self.require(run_ip("-n", host, "link", "set", device, "up"))

    def require(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)

    # Ranks 0 and 1 on one host, 2 and 3 on the other.
    def start_job(self, *options, shared_memory="on", encryption="off", timeout_s=60, master="10.77.0.1"):
        url = f"tcp://{master}:29541"
        places = [host for host in self.hosts for _ in range(2)]
        commands = [["ip", "netns", "exec", place, *self.command(url, "output", *options, timeout_s=timeout_s)]
                    for place in places]
        # The processes see each other, and the system would take them for those of one host.
        return ranks.start(self, commands, [{"LIBTRAIN_HOST": place, "LIBTRAIN_SHARED_MEMORY": shared_memory,
                                             "LIBTRAIN_ENCRYPTION": encryption} for place in places])

    def test_train_together(self):
        ends = ranks.wait(self.start_job())
        self.require_success(ends, "output", "shared_memory+tcp")
        self.assertIn("4 ranks on 2 hosts: shared memory inside, tcp between", ends[0].stderr)

    def test_a_host_that_knows_its_own_name_under_two_addresses(self):
        for host, own in zip(self.hosts, ("127.0.1.1 lead\n", "")):
            folder = Path("/etc/netns") / host  # what ip netns exec puts over /etc
            self.addCleanup(shutil.rmtree, folder)
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(own + "10.77.0.1 lead\n")
        # The default route leads elsewhere.
        self.require(run_ip("-n", self.hosts[0], "addr", "add", "192.168.77.1/32", "dev", "lo"))
        self.require(run_ip("-n", self.hosts[0], "route", "add", "default", "dev", "lo", "src", "192.168.77.1"))
        self.require_success(ranks.wait(self.start_job(master="lead")), "output", "shared_memory+tcp")

    def test_train_together_without_shared_memory(self):
        self.require_success(ranks.wait(self.start_job(shared_memory="off")), "output", "tcp")

    def test_train_together_encrypted(self):
        for shared_memory, backend in (("on", "shared_memory+encrypted tcp"), ("off", "encrypted tcp")):
            with self.subTest(shared_memory=shared_memory):
                job = self.start_job(shared_memory=shared_memory, encryption="on")
                self.require_success(ranks.wait(job), "output", backend)
                shutil.rmtree(self.folder / "output")

    def test_ranks_in_pid_and_network_namespaces_of_their_own(self):
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        commands = [["ip", "netns", "exec", host, *apart, *self.command("tcp://10.77.0.1:29542", "output")]
                    for host in self.hosts]
        ends = ranks.wait(ranks.start(self, commands))
        self.require_success(ends, "output", "tcp")
        said = "Ranks 0 and 1 run on one machine but cannot share memory, because their PID namespaces differ"
        self.assertEqual([end.stderr.count(said) for end in ends], [1, 0], ends[0])

    def test_a_cut_cable_ends_the_job_on_both(self):
        job = self.start_job("--steps", 100000, timeout_s=TIMEOUT_S)
        metrics = self.folder / "output/metrics.jsonl"
        deadline = time.monotonic() + 30
        while not (metrics.exists() and '"step"' in metrics.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.require(run_ip("-n", self.hosts[0], "link", "set", self.cables[0], "down"))
        cut = time.time()
        for rank, end in enumerate(ranks.wait(job)):
            self.assertEqual(end.exit_code, COMMUNICATION, f"rank {rank}: {end}")
            self.assertLess(end.ended - cut, TIMEOUT_S + 7, f"rank {rank}: {end}")
            # One report a host, which names a rank of the other.
        reports = [end.stderr for end in ranks.wait(job)]
        self.assertRegex(reports[0] + reports[1], "rank [23] ")
        self.assertRegex(reports[2] + reports[3], "rank [01] ")


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
