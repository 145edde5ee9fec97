# tools/install.sh: what tools/quickstart and tools/test have in common. Sourced, not run.
#
# Installs, step by step and only what is missing: packages with apt (as root or with sudo), a
# virtual environment in .venv, and this project in it. Says what it does; ends with one sentence
# where something is missing. The caller has set -euo pipefail and changed to the checkout.
# shellcheck shell=bash

VENV=.venv
TORCH="torch==2.13.0" # as in pyproject.toml, extra "test"

say() { printf '==> %s\n' "$*"; }

stop() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

is_root() { [ "$(id -u)" = 0 ]; }

have() { command -v "$1" > /dev/null 2>&1; }

# Runs a command as root; $1 says what for.
as_root() {
  local purpose=$1
  shift
  if is_root; then
    "$@"
  elif have sudo; then
    sudo -- "$@"
  else
    stop "$purpose needs root: run this as root, or install sudo."
  fi
}

# --- apt packages

# Prints the packages of a test cluster of Slurm (tests/slurm_cluster.py) whose programs are missing.
missing_slurm_packages() {
  local path=$PATH:/usr/sbin:/sbin
  PATH=$path have slurmctld || echo slurmctld
  PATH=$path have slurmd || echo slurmd
  have scontrol || echo slurm-client
  PATH=$path have munged || echo munge
}

# Prints the name of each package that brings a tool or file which is not there.
missing_packages() {
  have gcc || have cc || echo gcc
  [ -e /usr/include/stdlib.h ] || echo libc6-dev
  if ! have pkg-config; then
    echo pkg-config libfuse3-dev
  elif ! pkg-config --exists fuse3; then
    echo libfuse3-dev
  fi
  have fusermount3 || echo fuse3
  have mount || echo mount
  have getfattr || echo attr
}

# Prints the packages that the Python in $1 lacks; nothing for one that did not come from apt.
missing_python_packages() {
  local python=$1 name
  case $(command -v "$python") in
    /usr/bin/* | /bin/*) ;;
    *) return 0 ;;
  esac
  name=python$(version_of "$python")
  has_headers "$python" || echo "$name-dev"
  has_venv "$python" || echo "$name-venv"
}

apt_install() {
  [ $# -gt 0 ] || return 0
  have apt-get || stop "missing: $*. There is no apt-get here; install them by hand and run this again."
  say "apt-get install $*"
  as_root "apt-get" apt-get update -qq || say "apt-get update failed; trying with the old lists"
  as_root "apt-get" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" > /dev/null \
    || stop "apt-get could not install: $*."
}

# Prints the packages that tools/cluster lacks.
missing_cluster_packages() {
  { have ip && have tc; } || echo iproute2
  { have nsenter && have unshare; } || echo util-linux
  { have glusterd && have gluster && have glusterfs; } || echo glusterfs-server glusterfs-client
}

# For tools/cluster, and only when asked for: GlusterFS brings ten packages, and nothing else needs
# it. No glusterd of the machine has to run; a cluster starts its own.
install_cluster() {
  # shellcheck disable=SC2046  # one word each
  apt_install $(missing_cluster_packages)
}

# --- Python

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' > /dev/null 2>&1; }

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

has_headers() {
  "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

has_venv() { "$1" -c 'import ensurepip, venv' > /dev/null 2>&1; }

# Prints the first Python that is new enough: $PYTHON, the usual one, then others.
find_python() {
  local python
  for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3 \
    python3.13 python3.12 python3.11 python3.10; do
    if have "$python" && is_new_enough "$python"; then
      echo "$python"
      return 0
    fi
  done
  return 1
}

# --- the steps

install_system() {
  local python packages
  find_python > /dev/null || have python3 || apt_install python3 python3-venv python3-dev
  python=$(find_python) || stop "no Python 3.10 or newer; name one with PYTHON=/path/to/python3."
  packages=$(missing_packages; missing_python_packages "$python")
  # shellcheck disable=SC2086  # one word each
  apt_install $packages
  check_system "$python"
}

# For the tests only, and only where there is apt; without it the tests that need Slurm are skipped.
install_slurm() {
  local packages
  packages=$(missing_slurm_packages)
  [ -n "$packages" ] || return 0
  # shellcheck disable=SC2086  # one word each
  if have apt-get && { is_root || have sudo; } && (apt_install $packages); then return 0; fi
  say "no Slurm here; the tests that need it are skipped"
}

check_system() {
  local python=$1
  have gcc || have cc || stop "no C compiler found; pyfuse3 is built from source and needs one."
  pkg-config --exists fuse3 || stop "the headers of libfuse 3 (libfuse3-dev) are missing."
  has_headers "$python" || stop "the headers of $python (Python.h) are missing."
  has_venv "$python" || stop "$python cannot make virtual environments (venv, ensurepip)."
}

# Makes .venv unless there is a working one.
make_venv() {
  local python
  if [ -x "$VENV/bin/python" ] && is_new_enough "$VENV/bin/python"; then return 0; fi
  python=$(find_python)
  say "making the virtual environment $VENV with $("$python" --version)"
  if [ -e "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ]; then
    stop "$VENV is there and is no virtual environment; move it away."
  fi
  "$python" -m venv --clear "$VENV" || stop "could not make $VENV; is $PWD writable?"
}

# Installs the project, editable, with the extras in $1. Skipped when pyproject.toml and Python are
# those of the last time; what was installed then is listed in a stamp, one line each.
install_project() {
  local extras=$1 stamp=$VENV/installed state
  state=$({ "$VENV/bin/python" --version; pwd; cat pyproject.toml; } | sha256sum | cut -d' ' -f1)
  if grep -qsx -e "$state $extras" -e "$state all,test" "$stamp"; then return 0; fi
  say "pip install -e '.[$extras]'; this can take some minutes"
  pip_install -e ".[$extras]"
  echo "$state $extras" >> "$stamp"
}

install_torch() {
  if "$VENV/bin/python" -c 'import torch' > /dev/null 2>&1; then return 0; fi
  say "pip install $TORCH"
  pip_install "$TORCH"
}

pip_install() {
  if "$VENV/bin/python" -m pip install -qq --disable-pip-version-check "$@"; then return 0; fi
  case "$*" in
    *test* | *torch*)
      say "$TORCH has no build for every Python; this one is $(version_of "$VENV/bin/python")."
      say "With another: rm -r $VENV, then PYTHON=python3.12 $0"
      ;;
  esac
  stop "pip could not install it; its own message is above."
}

# --- FUSE

# shellcheck disable=SC2034  # read by those that source this
NO_FUSE="/dev/fuse is missing or closed. On a machine of your own try 'modprobe fuse' as root; a \
container needs --device /dev/fuse --cap-add SYS_ADMIN."

# Whether this user can open /dev/fuse. The test for a device comes first: <> would make a file.
fuse_opens() { [ -c /dev/fuse ] && (: <> /dev/fuse) 2> /dev/null; }

# The same by root, with the kernel's module loaded where it can be.
fuse_opens_for_root() {
  is_root || have sudo || return 1
  [ -c /dev/fuse ] || as_root "modprobe" modprobe fuse > /dev/null 2>&1 || return 1
  as_root "opening /dev/fuse" bash -c '[ -c /dev/fuse ] && : <> /dev/fuse' 2> /dev/null
}
