#!/usr/bin/env bash
# usage: scripts/mlflow_server.sh [option of mlflow server]...
#        scripts/mlflow_server.sh --where
#
# Runs an MLflow server. If it is missing, pip first installs the wheels that scripts/mlflow_server.txt pins, beside the
# environments that scripts/setup.sh makes. --where installs them and prints the path of the Python program that has
# them.
# Exit code 77: they cannot be installed here, because Python's venv module or a network is missing.
#
#   scripts/mlflow_server.sh --port 5000        MLFLOW_TRACKING_URI=http://127.0.0.1:5000
#
# LIBTRAIN_CACHE_DIR  the folder to install into (default ~/.cache/libtrain)
# pip's own settings (pip.conf, PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT) choose mirrors and proxies.
set -euo pipefail
caller=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$caller"
case ${1:-} in --help | -h) print_usage "$root/scripts/mlflow_server.sh" && exit 0 ;; esac

make_environment mlflow-server mlflow_server.txt mlflow.server.fastapi_app
# Neither usage reports nor a look for newer versions.
export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true
if [ "${1:-}" = --where ]; then
  echo "$folder/bin/python"
else
  exec "$folder/bin/python" -m mlflow server "$@"
fi
