# shellcheck shell=bash disable=SC2034
# Code that the scripts share; sourced, not run. Changes to the checkout's root and, without LIBTRAIN_TORCH_ROOT, puts
# .deps/bin first on PATH.

unset CDPATH  # with which cd prints
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root" || exit 3
[ -n "${LIBTRAIN_TORCH_ROOT:-}" ] || export PATH="$root/.deps/bin:$PATH"
# Open MPI does not start without HOME.
export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"

# Compiling a file that includes LibTorch takes up to 1.8 GB: two at once fit nearly everywhere.
cores=$(nproc)
jobs=${LIBTRAIN_JOBS:-$((cores < 2 ? cores : 2))}
slots=$((2 * jobs))  # of ctest: a test takes one per half core that it uses (tests/CMakeLists.txt)

# The environment's Python, or python3 if only Debian packages are installed.
python=python3
[ ! -x .deps/bin/python ] || python=.deps/bin/python

# Installs what is missing. A machine with its own LibTorch needs no wheels.
set_up() {
  if [ -n "${LIBTRAIN_TORCH_ROOT:-}" ]; then
    scripts/setup.sh --skip-wheels
  else
    scripts/setup.sh
    python=.deps/bin/python
  fi
}

# configure <preset> <tree> [option of cmake]...
configure() {
  local preset=$1 tree=$2
  shift 2
  # In a different environment CMake must search for its packages again.
  local environment known=$tree/.environment fresh=()
  environment="$(readlink .deps || true) ${LIBTRAIN_TORCH_ROOT:-} $*"
  if [ -f "$known" ] && [ "$(cat "$known")" != "$environment" ]; then
    fresh=(--fresh)
    # A precompiled header built while the old one exists differs from those of other trees, so that ccache misses every
    # file that includes LibTorch.
    find "$tree" -name '*.gch' -delete
  fi
  cmake --preset "$preset" -B "$tree" "${fresh[@]}" "$@"
  echo "$environment" >"$known"
}

# build <preset> [option of cmake --build]...
build() {
  local preset=$1
  shift
  # shellcheck disable=SC2086  # a list of options
  configure "$preset" "build/$preset" ${LIBTRAIN_CMAKE_OPTIONS:-}
  cmake --build "build/$preset" -j "$jobs" "$@"
}

# Prints the options with which mpirun starts that many ranks on this machine, one per line.
mpirun_options() {
  if [[ $("${LIBTRAIN_MPIRUN:-mpirun}" --version 2>/dev/null) == *HYDRA* ]]; then  # MPICH's
    printf '%s\n' -bind-to none
    return
  fi
  echo --bind-to
  echo none
  [ "$(id -u)" -ne 0 ] || echo --allow-run-as-root
  # Open MPI counts whole cores, not their hardware threads.
  local whole_cores
  whole_cores=$(lscpu -p=CORE,SOCKET 2>/dev/null | sed '/^#/d' | sort -u | wc -l) || true
  if [ "$1" -gt "$whole_cores" ] || [ "$1" -gt "$cores" ]; then
    echo --map-by
    echo :OVERSUBSCRIBE
  fi
}

# Prints the comment block at the top of a script as its help.
print_usage() { sed -n '2,/^[^#]/ { s/^# \{0,1\}//p }' "$1"; }

# The folder for downloads.
cache=${LIBTRAIN_CACHE_DIR:-$HOME/.cache/libtrain}

# Exits with the code that tells tests that a dependency cannot be installed here.
unavailable() {
  printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
  exit 77
}

# install_once <folder> <command>...   Runs the command, which fills the folder, unless it has succeeded before. One
# process at a time runs it; .complete marks a complete folder.
install_once() {
  local folder=$1
  shift
  [ ! -e "$folder/.complete" ] || return 0
  mkdir -p "$folder" || unavailable "cannot create the folder $folder. Set LIBTRAIN_CACHE_DIR to a writable folder."
  exec 9>>"$folder/install.lock"
  flock 9
  if [ ! -e "$folder/.complete" ]; then
    echo "$(basename "$0" .sh): installing into $folder" >&2
    "$@"
    touch "$folder/.complete"
  fi
  # A server that is started afterwards must not keep the lock.
  exec 9>&-
}

# make_environment <name> <list in scripts/> <modules>   Sets folder to a virtual environment with the wheels that the
# list pins, made unless it exists; <modules> are what it must be able to import.
make_environment() {
  local list=$root/scripts/$2
  folder=$(realpath -m "$cache/$1-$({ cat "$list" && python3 --version; } | sha256sum | cut -c1-12)")
  install_once "$folder" fill_environment "$folder" "$list" "$3"
}

fill_environment() {
  python3 -m venv "$1" >&2 || unavailable "python3 could not create a virtual environment (Debian: python3-venv)."
  PIP_USER=0 "$1/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
    --only-binary :all: --no-cache-dir --requirement "$2" >&2 ||
    unavailable "pip could not install the packages in $2 (its messages are above)."
  "$1/bin/python" -c "import $3" >&2 || unavailable "the packages in $2 are incomplete (Python's message is above)."
}
