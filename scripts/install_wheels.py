#!/usr/bin/env python3
"""Installs the pinned wheels of a requirements file into a virtual environment, and repairs one that is incomplete.

A package counts as installed if its RECORD names INSTALLER, which pip adds last, and every file that it lists exists
with its recorded size. All other packages are downloaded and installed again, so a run may be killed at any point and
restarted. Downloads overlap with each other and with the installation.

Called by scripts/setup.sh, which holds the lock: python3 install_wheels.py ENVIRONMENT REQUIREMENTS
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

PARALLEL_DOWNLOADS = 4
DOWNLOAD_ATTEMPTS = 2
# pip takes a second to start: batches of a few packages save time, large ones would hide the progress.
PACKAGES_AT_ONCE = 5
# Disk space of a new environment: at its peak (wheels and their contents), and when it is complete.
PEAK_BYTES = 8_000_000_000
INSTALLED_BYTES = 5_000_000_000
ENVIRONMENT_ERROR = 3


class SetupError(Exception):
    """The message says what failed and what to do."""


def read_pins(requirements):
    """The (name, version) pairs of a file with one `name==version` per line."""
    pins = []
    for line in Path(requirements).read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, separator, version = line.partition("==")
        if not separator or not version:
            raise SetupError(f"{requirements}: '{line}' is not of the form name==version.")
        pins.append((name, version))
    return pins


def normalised(name):
    return re.sub(r"[-_.]+", "_", name).lower()


def dist_infos(site, name):
    """The .dist-info folders of a package; each is called <name>-<version>.dist-info."""
    return [path for path in site.glob("*.dist-info")
            if normalised(path.name.removesuffix(".dist-info").rpartition("-")[0]) == normalised(name)]


def installed_bytes(site, name, version=None):
    """The size of an installed package; None if it is missing, incomplete or a different version."""
    found = dist_infos(site, name)
    if len(found) != 1 or (version and not found[0].name.endswith(f"-{version}.dist-info")):
        return None
    total, finished = 0, False
    try:
        with open(found[0] / "RECORD", newline="") as record:
            for path, _, size in csv.reader(record):
                finished |= path == f"{found[0].name}/INSTALLER"
                if size and os.stat(site / path).st_size != int(size):
                    return None
                total += int(size or 0)
    except (OSError, ValueError):
        return None
    return total if finished else None


def run(command, **variables):
    """Runs a command; returns its exit status and the end of its output."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_CONSTRAINT", "PYTHONPATH",
                                   "PYTHONHOME")}
    environment.update(PIP_USER="0", PYTHONNOUSERSITE="1", **variables)
    # The children inherit the lock of setup.sh: if this process is killed, the next run waits for them to end.
    result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, close_fds=False)
    return result.returncode, "\n".join(result.stdout.strip().splitlines()[-6:])


class Installation:
    def __init__(self, environment):
        self.environment = Path(environment)
        self.python = self.environment / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = self.environment / "lib" / version / "site-packages"
        self.wheels = self.environment / ".wheels"
        self.scratch = self.environment / ".scratch"

    def make_environment(self):
        if self.python.exists() and installed_bytes(self.site, "pip") is not None:
            return
        for leftover in [*dist_infos(self.site, "pip"), self.site / "pip"]:
            shutil.rmtree(leftover, ignore_errors=True)
        status, output = run([sys.executable, "-m", "venv", str(self.environment)])
        if status:
            raise SetupError(f"could not create the virtual environment {self.environment}:\n{output}\n"
                             "Install Python's venv module (Debian: python3-venv).")

    def pip(self, *arguments):
        return run([str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments],
                   TMPDIR=str(self.scratch))

    def download(self, name, version):
        """Returns the wheel of a package; files in .wheels are always complete."""
        folder = self.wheels / f"{normalised(name)}-{version}"
        partial = self.scratch / folder.name
        for _ in range(DOWNLOAD_ATTEMPTS):
            if folder.exists():
                break
            shutil.rmtree(partial, ignore_errors=True)
            # === excludes a local version such as 2.11.0+cpu of another index.
            status, output = self.pip("download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--quiet",
                                      "--dest", str(partial), f"{name}==={version}")
            if status == 0:
                partial.rename(folder)
        if folder.exists():
            return next(folder.glob("*.whl"))
        raise SetupError(f"could not download {name} {version}:\n{output}\n"
                         "Run the same command again to continue. Proxies and mirrors are pip's own settings "
                         "(pip.conf, PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT).")

    def install(self, wheels):
        """Installs downloaded wheels, given as {(name, version): file}."""
        if not wheels:
            return
        for name, _ in wheels:
            for leftover in dist_infos(self.site, name):
                shutil.rmtree(leftover)
        status, output = self.pip("install", "--no-deps", "--no-index", "--ignore-installed", "--no-compile",
                                  "--no-warn-script-location", "--quiet", *map(str, wheels.values()))
        for wheel in wheels.values():
            shutil.rmtree(wheel.parent)
        if status:
            names = ", ".join(f"{name} {version}" for name, version in wheels)
            raise SetupError(f"could not install {names}:\n{output}\nRun the same command again to continue.")

    def check_space(self, present_bytes):
        needed = PEAK_BYTES * (1 - min(1, present_bytes / INSTALLED_BYTES))
        free = shutil.disk_usage(self.environment).free
        if free < needed:
            raise SetupError(f"{self.environment} needs {needed / 1e9:.1f} GB of free disk space and has "
                             f"{free / 1e9:.1f} GB. Free disk space, or set LIBTRAIN_CACHE_DIR to a folder on a larger "
                             "disk.")

    def complete(self, pins):
        """Creates the environment and installs the pinned packages that are missing."""
        sizes = {pin: installed_bytes(self.site, *pin) for pin in pins}
        missing = [pin for pin in pins if sizes[pin] is None]
        shutil.rmtree(self.scratch, ignore_errors=True)
        if missing:
            self.check_space(sum(size or 0 for size in sizes.values()))
        self.make_environment()
        if not missing:
            return
        self.scratch.mkdir()
        self.wheels.mkdir(exist_ok=True)
        self.fetch_and_install(missing, len(pins))
        broken = [f"{name} {version}" for name, version in missing if installed_bytes(self.site, name, version) is None]
        if broken:
            raise SetupError(f"still incomplete after the installation: {', '.join(broken)}.")
        for folder in (self.scratch, self.wheels):
            shutil.rmtree(folder)

    def fetch_and_install(self, missing, total):
        done, failure, ready = total - len(missing), None, {}
        print(f"Python packages: {len(missing)} of {total} to install into {self.environment}", flush=True)
        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            pending = {pool.submit(self.download, *pin): pin for pin in missing}
            while pending or ready:
                for future in wait(pending, timeout=0 if ready else None, return_when=FIRST_COMPLETED).done:
                    pin = pending.pop(future)
                    try:
                        ready[pin] = future.result()
                    except (SetupError, OSError) as error:
                        failure = failure or error
                batch = {pin: ready.pop(pin) for pin in list(ready)[:PACKAGES_AT_ONCE]}
                try:
                    self.install(batch)
                except (SetupError, OSError) as error:
                    failure, batch, ready = failure or error, {}, {}
                for name, version in batch:
                    done += 1
                    print(f"[{done}/{total}] {name} {version}", flush=True)
                if failure:
                    # Downloads that have started are finished and kept.
                    pending = {future: pin for future, pin in pending.items() if not future.cancel()}
        if failure:
            raise failure


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        if sys.version_info < (3, 11):
            raise SetupError(f"Python 3.11 or newer is needed, but python3 is {sys.version.split()[0]}. "
                             "Put a newer one first on PATH.")
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        Installation(sys.argv[1]).complete(read_pins(sys.argv[2]))
    except (SetupError, OSError) as error:
        print(f"setup: {error}", file=sys.stderr)
        sys.exit(ENVIRONMENT_ERROR)
    except KeyboardInterrupt:
        print("setup: interrupted. Run the same command again to continue.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
