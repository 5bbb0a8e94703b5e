"""The sockets of a job are those that SECURITY.md promises, and no others."""

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs
import ranks
import sockets

# Longer than any test: the ranks are killed.
TIMEOUT_S = 120
HOST = "127.0.0.1"


class Sockets(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def command(self, *options):
        return [jobs.program("fault_program"), "--fault", "hang-before", "--note", self.folder / "note", "--output",
                self.folder / "output", "--timeout", TIMEOUT_S, *options]

    def take(self, held, **wanted):
        """The only socket of `held` that is like that, which is taken out."""
        found = [one for one in held if all(getattr(one, name) == value for name, value in wanted.items())]
        self.assertEqual(len(found), 1, f"{wanted} in {held}")
        held.remove(found[0])
        return found[0]

    def take_request_socket(self, held, rank):
        name = self.take(held, kind="unix").local
        self.assertRegex(name, rf"\A@libtrain {os.geteuid()} dump [0-9a-f]{{32}} {rank}\Z")
        return name.split()[2]

    def require_connected_job(self, processes):
        """Two connections between two ranks, no port that is open, one name for requests a rank, and nothing else."""
        held = [sockets.sockets_of(process) for process in processes]
        self.assertEqual(*(self.take_request_socket(own, rank) for rank, own in enumerate(held)))
        for connection in list(held[0]):
            self.assertEqual((connection.kind, connection.listens), ("tcp", False))
            self.assertTrue(connection.local.startswith(HOST) and connection.remote.startswith(HOST), connection)
            self.take(held[0], local=connection.local, remote=connection.remote)
            self.take(held[1], kind="tcp", local=connection.remote, remote=connection.local)
        self.assertEqual(held, [[], []])

    def test_of_ranks_that_meet_over_tcp(self):
        for shared_memory in ("on", "off"):
            for url in (f"tcp://{HOST}:{sockets.free_port()}", f"file://{self.folder}/meet-{shared_memory}"):
                with self.subTest(shared_memory=shared_memory, url=url[:4]):
                    (self.folder / "note").unlink(missing_ok=True)
                    job = ranks.start(self, [self.command("--dist-url", url)] * 2,
                                      [{"LIBTRAIN_SHARED_MEMORY": shared_memory}] * 2)
                    try:
                        jobs.wait_until((self.folder / "note").exists)
                        processes = [process.pid for process, _ in job]
                        connections = [one for one in sockets.sockets_of(processes[0]) if one.kind == "tcp"]
                        self.assertEqual(len(connections), 2, connections)
                        self.require_connected_job(processes)
                    finally:
                        ranks.wait(job, time_limit=0)  # the next one writes to the same output

    def test_of_a_rank_that_waits_for_another(self):
        port = sockets.free_port()
        # Rank 1 is not there yet.
        job = ranks.start(self, [self.command("--dist-url", f"tcp://{HOST}:{port}")], [{"WORLD_SIZE": "2"}])
        process = job[0][0].pid

        # Datagrams are not looked at: a rank looks up its own addresses with sockets that it closes unread.
        def serves():
            return [one for one in sockets.sockets_of(process) if one.listens and one.kind.startswith("tcp")]

        listening = jobs.wait_until(serves)
        self.assertEqual(listening, [sockets.Socket("tcp", True, f"{HOST}:{port}")])

    def test_under_mpi_none_is_libtrains_but_the_names_for_requests(self):
        # MPI's own connections between hosts stay closed.
        words = jobs.mpirun(2) + ["--mca", "btl", "self,sm"]
        job = ranks.start(self, [words + self.command()])
        jobs.wait_until((self.folder / "note").exists)
        mpirun = job[0][0].pid
        held = [sockets.sockets_of(process) for process in jobs.processes_of_this_program() - {mpirun}
                if Path(f"/proc/{process}/comm").read_text() == "fault_program\n"]
        self.assertEqual(len(held), 2)
        for own in sorted(held, key=lambda own: [one.local for one in own if one.kind == "unix"]):
            self.assertEqual([one for one in own if one.kind != "unix" and one.listens], [])
            # A rank's connection to mpirun, which is MPI's.
            self.take(own, kind="tcp")
        self.assertEqual(len({self.take_request_socket(own, r"[01]") for own in held}), 1)
        self.assertEqual(held, [[], []])


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
