#!/usr/bin/env bash
# usage: scripts/plot_runs.sh [option of plot_runs.py]... RUN...
#        scripts/plot_runs.sh --where
#
# Runs scripts/plot_runs.py with matplotlib. If it is missing, pip first installs the wheels that scripts/plot_runs.txt
# pins, beside the environments that scripts/setup.sh makes. --where installs them and prints the path of the Python
# program that has them.
# Exit code 77: they cannot be installed here, because Python's venv module or a network is missing.
#
# LIBTRAIN_CACHE_DIR  the folder to install into (default ~/.cache/libtrain)
# pip's own settings (pip.conf, PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT) choose mirrors and proxies.
set -euo pipefail
caller=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$caller"

make_environment plot-runs plot_runs.txt matplotlib.pyplot
if [ "${1:-}" = --where ]; then
  echo "$folder/bin/python"
else
  exec "$folder/bin/python" "$root/scripts/plot_runs.py" "$@"
fi
