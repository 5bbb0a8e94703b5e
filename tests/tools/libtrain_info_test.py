"""libtrain-info: what it answers, with which exit code, and what it must never print."""

import json
import os
import sys
import unittest
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

USAGE, ENVIRONMENT = 2, 3
LAUNCH_KEYS = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "node_count", "master_address",
               "master_port", "rendezvous")
CANARY = "canary5ecret"


def info(*arguments, ranks=None, **environment):
    return jobs.run([jobs.program("libtrain-info"), *arguments], ranks=ranks, environment=environment)


def objects_in(text):
    """The JSON objects that ranks have printed: MPICH's mpiexec does not keep their lines apart."""
    objects = []
    while text := text.lstrip():
        one, end = json.JSONDecoder().raw_decode(text)
        objects.append(one)
        text = text[end:]
    return objects


class Answers(unittest.TestCase):
    def require_launch(self, launch, **expected):
        self.assertEqual({key: launch[key]["value"] for key in expected}, expected)

    def test_a_single_process_is_rank_0_of_1(self):
        job = info("--json")
        self.assertEqual(job.exit_code, 0, job)
        launch = json.loads(job.stdout)
        self.require_launch(launch, rank=0, world_size=1, local_rank=0, local_world_size=1)
        self.assertEqual(launch["launcher"], "single")

    def test_every_value_names_its_source(self):
        job = info("--json", RANK="1", WORLD_SIZE="3", MASTER_ADDR="10.0.0.7", MASTER_PORT="4242")
        self.assertEqual(job.exit_code, 0, job)
        launch = json.loads(job.stdout)
        self.require_launch(launch, rank=1, world_size=3, master_address="10.0.0.7", master_port=4242)
        for key in LAUNCH_KEYS:
            self.assertTrue(launch[key]["source"], key)
        for key, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE"), ("master_address", "MASTER_ADDR"),
                              ("master_port", "MASTER_PORT")):
            self.assertIn(variable, launch[key]["source"])

    def test_options_win_over_variables(self):
        job = info("--json", "--rank", "0", "--world-size", "2", RANK="1", WORLD_SIZE="3", MASTER_ADDR="10.0.0.7")
        self.assertEqual(job.exit_code, 0, job)
        self.require_launch(json.loads(job.stdout), rank=0, world_size=2)

    def test_says_what_it_was_built_with(self):
        facts = json.loads(info("--json").stdout)
        self.assertRegex(facts["versions"]["libtrain"], r"^\d+\.\d+\.\d+$")
        self.assertTrue(facts["versions"]["torch"])
        self.assertTrue(facts["backends"]["compiled"])

    def test_says_how_idle_threads_wait_and_who_has_chosen_that(self):
        for variables, value, source in ((("PWD=/",), "GOMP_SPINCOUNT=1000", "libtrain"),
                                         (("PWD=/", "OMP_WAIT_POLICY=passive"), "OMP_WAIT_POLICY=passive", "environment"),
                                         (("PWD=/", "GOMP_SPINCOUNT=7", "OMP_WAIT_POLICY=passive"), "GOMP_SPINCOUNT=7",
                                          "environment"),
                                         (("A=1",), None, "OpenMP's default")):
            with self.subTest(variables):
                job = jobs.run(["env", "-i", *variables, jobs.program("libtrain-info"), "--json"])
                self.assertEqual(json.loads(job.stdout)["runtime"]["openmp_waiting"], {"value": value, "source": source})
        self.assertIn('  openmp_waiting {"value":"GOMP_SPINCOUNT=9","source":"environment"}\n',
                      info(GOMP_SPINCOUNT="9").stdout)

    def test_the_text_says_the_same(self):
        job = info(RANK="1", WORLD_SIZE="3", MASTER_ADDR="10.0.0.7")
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("rank 1 of 3 (RANK, WORLD_SIZE)", job.stdout)
        self.assertEqual(job.stderr, "")

    def test_the_ranks_of_mpirun_differ(self):
        job = info("--json", ranks=2)
        self.assertEqual(job.exit_code, 0, job)
        launches = sorted((json.loads(line) for line in job.stdout.splitlines()), key=lambda one: one["rank"]["value"])
        self.assertEqual(len(launches), 2)
        for rank, launch in enumerate(launches):
            self.require_launch(launch, rank=rank, world_size=2, local_rank=rank, local_world_size=2, node_count=1)
            self.assertIn(launch["launcher"], ("open_mpi", "pmi"))  # pmi: MPICH's


class Errors(unittest.TestCase):
    def test_half_a_pair_is_an_environment_error_that_names_both(self):
        for arguments in ((), ("--json",)):
            with self.subTest(arguments=arguments):
                job = info(*arguments, RANK="1")
                self.assertEqual(job.exit_code, ENVIRONMENT, job)
                self.assertEqual(len(job.stderr.splitlines()), 1, job)
                self.assertRegex(job.stderr, r"RANK=1 .*WORLD_SIZE")

    def test_an_error_still_leaves_the_facts_as_json(self):
        job = info("--json", WORLD_SIZE="two", RANK="0")
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        answer = json.loads(job.stdout)
        self.assertIn("'two'", answer["error"])
        answer["environment"].pop("OMP_NUM_THREADS", None)  # of who runs this test
        self.assertEqual(answer["environment"], {"RANK": "0", "WORLD_SIZE": "two"})

    def test_wrong_options_are_usage_errors(self):
        for arguments in (("--jsn",), ("--rank", "one"), ("--rank", "1")):
            with self.subTest(arguments=arguments):
                job = info(*arguments)
                self.assertEqual(job.exit_code, USAGE, job)
                self.assertEqual(len(job.stderr.splitlines()), 1, job)


    def test_a_standard_output_that_is_full_is_one(self):
        for arguments in ((), ("--json",), ("--help",)):
            with self.subTest(arguments=arguments):
                job = jobs.run(["bash", "-c", 'exec "$@" > /dev/full', "bash", jobs.program("libtrain-info"),
                                *arguments])
                self.assertEqual(job.exit_code, ENVIRONMENT, job)
                self.assertEqual(len(job.stderr.splitlines()), 1, job)
                self.assertIn("Cannot write to standard output", job.stderr)

    def test_arguments_are_shown_without_control_characters_and_not_at_any_length(self):
        job = info("--\x1b[2J\x1b]0;title\x07" + 120_000 * "x")
        self.assertEqual(job.exit_code, USAGE, job)
        self.assertNotIn("\x1b", job.stderr)
        self.assertNotIn("\x07", job.stderr)
        self.assertIn(r"\x1b[2J\x1b]0;title\x07xxx", job.stderr)
        self.assertLess(len(job.stderr), 5000)
        self.assertTrue(job.stderr.endswith("Run libtrain-info --help.\n"), job)


class Secrets(unittest.TestCase):
    SAS_URL = f"https://account.blob.core.windows.net/container?sv=2022-11-02&sp=r&sig={CANARY}%3D"
    ENVIRONMENTS = {
        "token": {"AZUREML_RUN_TOKEN": CANARY, "RANK": "0", "WORLD_SIZE": "1"},
        "signed URLs": {"AZ_BATCHAI_MPI_MASTER_NODE": SAS_URL, "AZ_BATCHAI_OUTPUT_MODEL": SAS_URL,
                        "AZ_BATCH_MASTER_NODE": SAS_URL},
        "signed URL in a number": {"RANK": SAS_URL, "WORLD_SIZE": "2"},
        "signed URL in half a pair": {"AZ_BATCHAI_TASK_INDEX": SAS_URL, "MASTER_ADDR": SAS_URL, "RANK": "1"},
        "password in a URL": {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": f"https://user:{CANARY}@host/"},
    }

    def test_are_never_printed(self):
        for name, environment in self.ENVIRONMENTS.items():
            for arguments in ((), ("--json",)):
                with self.subTest(name, arguments=arguments):
                    job = info(*arguments, **environment)
                    self.assertIn(job.exit_code, (0, ENVIRONMENT), job)
                    self.assertNotIn(CANARY, job.stdout + job.stderr)

    def test_are_not_printed_when_they_come_as_options(self):
        for arguments in (("--dist-url", self.SAS_URL), ("--rank", self.SAS_URL), (self.SAS_URL,)):
            with self.subTest(arguments=arguments):
                job = info(*arguments)
                self.assertIn(job.exit_code, (0, USAGE, ENVIRONMENT), job)
                self.assertNotIn(CANARY, job.stdout + job.stderr)


class Check(unittest.TestCase):
    def test_measures_each_host_and_each_pair_of_hosts(self):
        hosts = "LIBTRAIN_HOST=host-$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / 2)) exec "
        for backend, across in (("auto", "mpi"), ("gloo", "tcp")):
            with self.subTest(backend=backend):
                job = jobs.run(["bash", "-c", f"{hosts} {jobs.program('libtrain-info')} --check --json "
                                f"--dist-backend {backend}"], ranks=5)
                self.assertEqual(job.exit_code, 0, job)
                first, *others = sorted(objects_in(job.stdout), key=lambda one: one["rank"]["value"])
                check = first["connections"]
                self.assertEqual(check["description"], f"5 ranks on 3 hosts: shared memory inside, {across} between")
                self.assertEqual({(link["from"], link["to"]): link["ranks"] for link in check["links"]},
                                 {("host-0", "host-0"): 2, ("host-1", "host-1"): 2, ("host-0", "host-1"): 2,
                                  ("host-0", "host-2"): 2, ("host-1", "host-2"): 2})
                for link in check["links"]:
                    self.assertGreater(link["latency_s"], 0)
                    self.assertGreater(link["there_gb_s"], 0)
                    self.assertEqual(link["back_gb_s"] is None, link["from"] == link["to"])
                self.assertEqual([one["connections"]["links"] for one in others], [[]] * 4)

    def test_prints_one_table(self):
        job = info("--check", ranks=2)
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual(job.stdout.count("connections\n"), 1, job)
        self.assertRegex(job.stdout, r"all-reduce of 2 ranks: \S+ us for 8 bytes, \S+ GB/s for 16 MiB")

    def test_open_mpi_starts_without_its_module_for_one_sided_operations_unless_that_was_chosen(self):
        def output(**chosen):
            job = info("--check", ranks=2, OMPI_MCA_btl_base_verbose="20", **chosen)
            # Under AddressSanitizer the module ends the job: its libfabric reads beyond the end of a string.
            if not (chosen and "ASAN_OPTIONS" in os.environ):
                self.assertEqual(job.exit_code, 0, job)
            return job.stdout + job.stderr

        opened = "components_open: found loaded component ofi"  # costs a second: see libtrain/comm/detail/mpi/mpi_session.cpp
        self.assertNotIn(opened, output())
        if "component ofi" in output():  # not MPICH, which has other modules
            self.assertIn(opened, output(OMPI_MCA_btl_ofi_mode="1"))
            self.assertIn(opened, output(OMPI_MCA_btl="self,sm,ofi"))

    def test_a_rank_that_is_missing_is_named(self):
        job = info("--check", "--timeout", "1", RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        self.assertEqual(job.exit_code, 4, job)
        self.assertIn("rank 1 of 2 did not connect to tcp://127.0.0.1:29533 within", job.stderr)

    def test_ranks_of_torchrun_meet_at_a_port_of_their_job(self):
        job = jobs.run(["bash", "-c", 'RANK=1 "$@" & RANK=0 "$@"; code=$?; wait $! && exit $code', "both",
                        jobs.program("libtrain-info"), "--check"],
                       environment={"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29534",
                                    "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": uuid.uuid4().hex})
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("all-reduce of 2 ranks", job.stdout)

    def test_settings_of_the_meeting_are_shown_but_the_secret(self):
        job = info(LIBTRAIN_SECRET=CANARY + "0123456789", LIBTRAIN_ENCRYPTION="on", LIBTRAIN_HOST="node")
        self.assertEqual(job.exit_code, 0, job)
        for line in ("LIBTRAIN_SECRET '(not shown)'", "LIBTRAIN_ENCRYPTION 'on'", "LIBTRAIN_HOST 'node'"):
            self.assertIn(line, job.stdout)
        self.assertNotIn(CANARY, job.stdout + job.stderr)

    def test_one_rank_has_nothing_to_connect_to(self):
        job = info("--check")
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("1 rank, which has no other to connect to", job.stdout)


if __name__ == "__main__":
    jobs.require_programs("libtrain-info")
    unittest.main()
