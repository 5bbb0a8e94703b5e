#!/usr/bin/env bash
# Installs what libtrain needs to build and run: Debian packages, and the pinned wheels of requirements.txt.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: scripts/setup.sh [option]

Installs the missing Debian packages (with apt-get, through sudo if not root), and the wheels pinned in
requirements.txt into the environment ~/.cache/libtrain/deps-<hash of that list>, linked as .deps in the checkout.
Does nothing if everything is installed; may be interrupted and run again.

  --skip-wheels     Debian packages only (for a machine with its own LibTorch and MPI)
  --repair          check every installed file again and reinstall damaged packages
  --print-packages  print the names of the Debian packages and exit
  --help            print this text

LIBTRAIN_CACHE_DIR  the folder that holds the environments (default ~/.cache/libtrain); needs about 8 GB of free space
pip's own settings (pip.conf, PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT) choose mirrors and proxies.
EOF
}

# Debian package | purpose | command that succeeds if the machine has it, packaged or not
debian_packages=(
  "g++|the C++ compiler, GCC 12 or newer|command -v g++"
  "ccache|compiles unchanged files only once; optional|true"
  "git|the revision that a run records|command -v git"
  "ca-certificates|certificates for the downloads|[ -s /etc/ssl/certs/ca-certificates.crt ] || [ -s /etc/pki/tls/certs/ca-bundle.crt ]"
  "python3|installs the wheels, 3.11 or newer|python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'"
  "python3-venv|virtual environments|python3 -c 'import ensurepip, venv'"
  "libgtest-dev|the tests|has_header gtest/gtest.h"
  "libgmock-dev|the tests|has_header gmock/gmock.h"
  "libssl-dev|authentication of ranks that connect over TCP|has_header openssl/evp.h"
  "libcurl4-openssl-dev|tracking on MLflow servers; optional|true"
  "libcli11-dev|command-line options|has_header CLI/CLI.hpp"
  "libjpeg-dev|JPEG images (libjpeg-turbo)|has_header jpeglib.h"
  "libspng-dev|PNG images|has_header spng.h"
  "zlib1g-dev|compressed data files|has_header zlib.h"
  "libsimdjson-dev|COCO annotations|has_header simdjson.h"
  "libxxhash-dev|checksums of cached files|has_header xxhash.h"
  "libpcre2-dev|splits text into words|has_header pcre2posix.h"
  "libeigen3-dev|small dense algebra|has_header eigen3/Eigen/Core"
  "nlohmann-json3-dev|JSON files|has_header nlohmann/json.hpp"
)

has_header() { echo "#include <$1>" | g++ -std=c++20 -M -x c++ -; }

fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 3
}

package_names() { printf '%s\n' "${debian_packages[@]%%|*}"; }

# The required Debian packages that dpkg does not list; all of them if there is no dpkg.
missing_packages() {
  local installed=""
  if command -v dpkg-query >/dev/null; then
    # shellcheck disable=SC2046
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $(package_names) 2>/dev/null | sed -n 's/^installed //p')
  fi
  comm -23 <(package_names | sort) <(sort <<<"$installed")
}

# Prints the command to run before apt-get; fails if apt-get cannot be used.
apt_prefix() {
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" -eq 0 ]; then
    echo env
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    echo sudo
  else
    return 1
  fi
}

apt_get() {
  "$prefix" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" |
    sed -u -n 's/^Setting up \([^ ]*\) .*/  \1/p'
}

install_packages() {
  local prefix=$1
  shift
  echo "Debian packages to install: $*"
  # An interrupted installation is finished first: dpkg refuses anything else.
  if [ -n "$(dpkg --audit)" ]; then
    "$prefix" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null || true
    apt_get --fix-broken install || true
  fi
  if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null && apt_get --no-install-recommends install "$@"; then
    return
  fi
  apt_get update && apt_get --no-install-recommends install "$@"
}

# Without apt-get: lists the packages to install by hand, and fails if their tools are missing as well.
check_by_hand() {
  local entry package purpose probe report="" state absent=0
  for entry in "${debian_packages[@]}"; do
    IFS='|' read -r package purpose probe <<<"$entry"
    grep -qxF -- "$package" <<<"$1" || continue
    state="works without it"
    eval "$probe" >/dev/null 2>&1 || { state=MISSING && absent=1; }
    report+=$(printf '\n  %-20s %s (%s)' "$package" "$purpose" "$state")
  done
  if [ $absent -ne 0 ] || { [ -n "$report" ] && [ ! -e "$root/.deps" ]; }; then
    echo "These Debian packages are not installed, and apt-get $2:$report" >&2
  fi
  [ $absent -eq 0 ] || fail "install the packages marked MISSING, or equivalents, and run the same command again."
}

set_up_packages() {
  local missing prefix
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  # shellcheck disable=SC2086
  if ! prefix=$(apt_prefix); then
    check_by_hand "$missing" "cannot be used here (no root, no sudo, or no apt)"
  elif ! install_packages "$prefix" $missing; then
    check_by_hand "$(missing_packages)" "could not install them (its messages are above)"
  fi
}

environment_name() {
  local version
  version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || return 1
  { cat "$root/requirements.txt" && echo "python $version"; } | sha256sum | cut -c1-12 | sed 's/^/deps-/'
}

is_linked() { [ -L "$root/.deps" ] && [ "$(readlink "$root/.deps")" = "$1" ]; }

is_complete() { [ -e "$1/.complete" ] && [ -x "$1/bin/python" ]; }

set_up_wheels() {
  local environment=$1 is_new=no
  if ! is_complete "$environment"; then
    is_new=yes
    python3 "$root/scripts/install_wheels.py" "$environment" "$root/requirements.txt" || exit $?
    touch "$environment/.complete"
    echo "Python packages are complete in $environment"
  fi
  [ -L "$root/.deps" ] || [ ! -e "$root/.deps" ] || fail "$root/.deps is not a link. Move it away and run this again."
  is_linked "$environment" || ln -sfn "$environment" "$root/.deps"
  [ $is_new = no ] || mention_old_environments "$environment"
}

mention_old_environments() {
  local other
  for other in "$cache"/deps-*; do
    [ "$other" = "$1" ] || echo "An older environment is kept; delete it when no checkout uses it:" \
      "$(du -sh "$other" | tr '\t' ' ')"
  done
}

unset CDPATH  # with which cd prints
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
wheels=yes
repair=no
for argument in "$@"; do
  case $argument in
    --help | -h) usage && exit 0 ;;
    --print-packages) package_names && exit 0 ;;
    --skip-wheels) wheels=no ;;
    --repair) repair=yes ;;
    *) usage >&2 && exit 2 ;;
  esac
done

export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"
cache=${LIBTRAIN_CACHE_DIR:-$HOME/.cache/libtrain}
mkdir -p "$cache" || fail "cannot create the folder $cache. Set LIBTRAIN_CACHE_DIR to a writable folder."
cache=$(cd "$cache" && pwd -P)

# In the most common case there is nothing to install; it takes no lock, and the cache may be another user's.
if [ $repair = no ] && [ -z "$(missing_packages)" ]; then
  [ $wheels = yes ] || exit 0
  environment=$cache/$(environment_name)
  if is_complete "$environment"; then
    set_up_wheels "$environment"
    exit 0
  fi
fi

for file in "$cache" "$cache/setup.lock"; do
  [ -w "$file" ] || [ ! -e "$file" ] || fail "$file is not writable. Set LIBTRAIN_CACHE_DIR to a writable folder."
done
exec 9>>"$cache/setup.lock"
if ! flock -n 9; then
  echo "Another setup is running; this one continues when it ends."
  flock 9
fi
set_up_packages
[ $wheels = yes ] || exit 0
environment=$cache/$(environment_name)
[ $repair = no ] || rm -f "$environment/.complete"
set_up_wheels "$environment"
