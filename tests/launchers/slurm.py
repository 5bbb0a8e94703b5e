"""A Slurm of one node and this test's own: munged, slurmctld and slurmd in a temporary folder."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import sockets

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "squeue")
CPUS = 64  # more than the machine has: many small jobs run at once


def missing_programs():
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def _path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Slurm:
    def __init__(self):
        # Short, for names of sockets; and open, for steps of other users.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.daemons = []
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self):
        user = pwd.getpwuid(os.geteuid()).pw_name
        host = socket.gethostname().split(".")[0]
        for name in ("munge", "state", "spool", "log"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = self.folder / "munge"
        controller_port, daemon_port = sockets.free_ports(2)
        (self.folder / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={munge}/socket
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldLogFile={self.folder}/log/slurmctld
SlurmdLogFile={self.folder}/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=2
InactiveLimit=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={CPUS} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
""")
        self._start_daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                           f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self._wait_until(lambda: (munge / "socket").exists(), "munged did not start")
        self._start_daemon("slurmctld", "-D", "-c")
        self._start_daemon("slurmd", "-D", "-c")
        self._wait_until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t").stdout, "slurmd is not ready")
        return self

    def stop(self):
        subprocess.run(["scancel", "--state=RUNNING", "-u", str(os.geteuid())], env=self._environment(), timeout=20,
                       capture_output=True, check=False)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self, more=None):
        # Without the variables of a surrounding job.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMIX_"))}
        return own | self.environment | {"PATH": _path()} | (more or {})

    def popen(self, *command, environment=None, **options):
        return subprocess.Popen([str(word) for word in command], env=self._environment(environment),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def run(self, *command, environment=None, timeout=60):
        return subprocess.run([str(word) for word in command], env=self._environment(environment), text=True,
                              capture_output=True, timeout=timeout, check=False)

    def _start_daemon(self, *command):
        with open(self.folder / f"{command[0]}.out", "wb") as output:
            self.daemons.append(subprocess.Popen(command, env=self._environment(), stdout=output, stderr=output))

    def _wait_until(self, condition, failure):
        for _ in range(300):
            if condition():
                return
            time.sleep(0.1)
        logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in
                         [*self.folder.glob("*.out"), *self.folder.glob("log/*")])
        raise RuntimeError(f"{failure}:\n{logs}")
