#!/usr/bin/env bash
# usage: scripts/cloud_emulators.sh s3 [option of moto_server]...
#        scripts/cloud_emulators.sh gcs [option of gcp-storage-emulator start]...
#        scripts/cloud_emulators.sh --where
#
# Runs an emulator of S3 (moto) or of Google Cloud Storage (gcp-storage-emulator). If they are missing, pip first
# installs the wheels that scripts/cloud_emulators.txt pins, beside the environments that scripts/setup.sh makes.
# --where installs them and prints the path of the Python program that has them.
# Exit code 77: they cannot be installed here, because Python's venv module or a network is missing.
#
#   scripts/cloud_emulators.sh s3 -H 127.0.0.1 -p 5000          AWS_ENDPOINT_URL=http://127.0.0.1:5000
#   scripts/cloud_emulators.sh gcs --port 9000 --in-memory      CLOUD_STORAGE_EMULATOR_ENDPOINT=http://localhost:9000
#
# LIBTRAIN_CACHE_DIR  the folder to install into (default ~/.cache/libtrain)
# pip's own settings (pip.conf, PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT) choose mirrors and proxies.
set -euo pipefail
caller=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$caller"
case ${1:-} in
  --help | -h) print_usage "$root/scripts/cloud_emulators.sh" && exit 0 ;;
  s3 | gcs | --where) ;;
  *) print_usage "$root/scripts/cloud_emulators.sh" >&2 && exit 2 ;;
esac

make_environment cloud-emulators cloud_emulators.txt 'gcp_storage_emulator.server, moto.iam.models, moto.s3.models, moto.server'
case $1 in
  --where) echo "$folder/bin/python" ;;
  s3) exec "$folder/bin/moto_server" "${@:2}" ;;
  gcs) exec "$folder/bin/gcp-storage-emulator" start "${@:2}" ;;
esac
