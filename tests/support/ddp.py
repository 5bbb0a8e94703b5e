"""Ranks of PyTorch's DDP, as processes of the test's own."""

import datetime
import os
import signal
import sys
import tempfile
import time

import torch

TIMEOUT_S = 60  # of a collective


def run(rank_main, *arguments, ranks=2, time_limit=240):
    """Calls rank_main(rank, *arguments), which must be a function of a module, on ranks that gloo connects. Where they
    take more than `time_limit` seconds, each writes its stack to standard error, and they are killed."""
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.start_processes(_run_rank, (rank_main, f"{folder}/store", ranks, arguments),
                                                        nprocs=ranks, join=False, start_method="spawn")
        deadline = time.monotonic() + time_limit
        try:
            while not context.join(timeout=max(0, deadline - time.monotonic())):
                if time.monotonic() > deadline:
                    raise AssertionError(f"the ranks of DDP have not ended within {time_limit} s")
        except AssertionError:
            for process in context.processes:
                os.kill(process.pid, signal.SIGUSR1)  # see jobs.py
                process.join(1)
            raise
        finally:
            for process in context.processes:
                process.kill()
                process.join()


def _run_rank(rank, rank_main, store, ranks, arguments):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks,
                                         timeout=datetime.timedelta(seconds=TIMEOUT_S))
    rank_main(rank, *arguments)
    torch.distributed.barrier()
    # Without Python's and gloo's clean-up: threads of gloo that still release Python objects may abort or block it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
