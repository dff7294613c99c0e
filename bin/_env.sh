# shellcheck shell=bash
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What bin/demo, bin/test and molecule/cluster/create.yml share; sourced by them. Sets `root` and offers:
#   say TEXT                     a progress line with the seconds since the start
#   die TEXT                     an error and the end
#   quietly NAME COMMAND...      run it with its output in .cache/log/NAME.log, whose end is shown when it fails
#   link_collection              the collection where Ansible finds it, in .venv/collections
#   prepare_python               .venv with requirements/test.txt, activated; the collection linked into it
#   make_venv PYTHON DIRECTORY   a virtual environment with requirements/test.txt
#   newer_python                 prints a Python for the newest ansible-core that is supported, or nothing
#   prepare_newest_core          .cache/venv-newest with it
#   begin_newest_core            the same beside other preparations, where nothing has to be installed for it
#   begin_labs                   what labs and unit tests need through apt and npm, beside prepare_python
#   with_newest_core COMMAND...  runs a command in it
#   prepare_blob_tools           Azurite and AzCopy in .cache/blob
#   prepare_lab_packages         podman and what else the lab and the unit tests need, through apt
#   prepare_dnf_packages         rpm, dnf and what makes repositories for them, through apt
#   prepare_apt_packages         what signs repositories of Debian packages, through apt
#   prepare_vm_packages          QEMU and what else the VM lab needs, through apt
#   prepare_container_packages   Debian's Docker and containerd as files in .cache/container_packages: nothing is installed here
# Each costs well under a second when there is nothing to do, and then needs no network.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
started=$SECONDS
mkdir -p "$root/.cache/log"

# Thousands of processes import the same files: they are compiled once, whatever the caller has told Python, and not into the tree.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$root/.cache/pycache

say() {
  printf '[%4d s] %s\n' $((SECONDS - started)) "$*"
}

die() {
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
  exit 1
}

quietly() {
  local log="$root/.cache/log/$1.log"
  shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    die "this failed: $* (the whole output is in ${log#"$root"/})"
  fi
}

# hash_files FILE...: one digest over the contents.
hash_files() {
  cat -- "$@" | sha256sum | cut -d ' ' -f 1
}

# apt_install PACKAGE...: installs those that are missing, or says how.
apt_install() {
  local package as_root=''
  local -a missing=()
  if ! command -v dpkg-query >/dev/null; then
    return 0 # another distribution: tests/lab/host.py names missing programs
  fi
  for package in "$@"; do
    [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    if sudo -n true 2>/dev/null; then
      as_root=sudo
    else
      die "these packages are missing. Install them, then run this again:
  sudo apt-get install --no-install-recommends ${missing[*]}"
    fi
  fi
  say "Installing packages: ${missing[*]}"
  # shellcheck disable=SC2086  # empty when root
  quietly apt-update $as_root apt-get --quiet update
  # shellcheck disable=SC2086
  quietly apt-install $as_root env DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes install --no-install-recommends "${missing[@]}"
}

make_venv() {
  local python=$1 venv=$2 log stamp
  log=${venv##*/}
  log=${log#.}
  stamp="$("$python" --version) $(hash_files "$root"/requirements/*.txt)"
  if [[ $(cat "$venv/.stamp" 2>/dev/null) == "$stamp" ]]; then
    return 0
  fi
  say "Making ${venv#"$root"/} with $("$python" --version) (log: .cache/log/$log-pip.log)"
  "$python" -c 'import ensurepip' 2>/dev/null || apt_install "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  quietly "$log" "$python" -m venv "$venv"
  quietly "$log-pip" "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --requirement "$root/requirements/test.txt"
  printf '%s\n' "$stamp" >"$venv/.stamp"
}

link_collection() {
  mkdir -p "$root/.venv/collections/ansible_collections/hpcai"
  ln -sfn ../../../.. "$root/.venv/collections/ansible_collections/hpcai/gpu_cluster"
}

prepare_python() {
  local python=${PYTHON:-python3}
  command -v "$python" >/dev/null || apt_install python3 python3-venv
  command -v "$python" >/dev/null || die "$python is missing. Install Python 3.11 or newer."
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" --version) is too old, 3.11 or newer is needed. Set PYTHON=/path/to/a/newer/python3."
  make_venv "$python" "$root/.venv"
  link_collection
  # shellcheck disable=SC1091
  source "$root/.venv/bin/activate"
  export ANSIBLE_CONFIG=$root/ansible.cfg ANSIBLE_COLLECTIONS_PATH=$root/.venv/collections
  export MOLECULE_GLOB='molecule/*/molecule.yml'
}

newer_python() {
  local python
  for python in python3.13 python3.12 "$HOME"/.pyenv/versions/3.1[23].*/bin/python3; do
    if "$python" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 14))' 2>/dev/null; then
      printf '%s\n' "$python"
      return
    fi
  done
}

prepare_newest_core() {
  make_venv "$(newer_python)" "$root/.cache/venv-newest"
}

# It leaves packages of the system to prepare_newest_core alone, so that it can run beside prepare_python.
begin_newest_core() {
  local python
  python=$(newer_python)
  [[ -n $python ]] && "$python" -c 'import ensurepip' 2>/dev/null || return 0
  prepare_newest_core
}

with_newest_core() {
  PATH=$root/.cache/venv-newest/bin:$PATH "$@"
}

# A run and a single test beside it can both want them: the second one waits for the first.
prepare_blob_tools() (
  local blob=$root/.cache/blob source=$root/tests/lab/blob stamp version tree
  apt_install libsecret-1-0
  stamp=$(hash_files "$source/package.json" "$source/package-lock.json")
  mkdir -p "$blob"
  exec {installing}>>"$blob/.lock"
  flock "$installing"
  if [[ $(cat "$blob/.stamp" 2>/dev/null) == "$stamp" ]]; then
    return 0
  fi
  say 'Installing Azurite and AzCopy into .cache/blob (log: .cache/log/npm.log)'
  cp "$source/package.json" "$source/package-lock.json" "$blob/"
  quietly npm npm ci --prefix "$blob" --no-audit --no-fund --no-update-notifier --ignore-scripts
  chmod +x "$blob/node_modules/@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64"
  # The npm package carries the bare binary; the role installs an archive of the upstream shape.
  version=$(sed -n 's/.*azcopy-linux": "\(.*\)".*/\1/p' "$source/package.json")
  tree=azcopy_linux_amd64_$version
  mkdir -p "$blob/$tree"
  cp "$blob/node_modules/@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64" "$blob/$tree/azcopy"
  tar --create --directory "$blob" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner "$tree" | gzip -n >"$blob/azcopy.tar.gz"
  rm -r "${blob:?}/$tree"
  sha256sum "$blob/azcopy.tar.gz" | cut -d ' ' -f 1 >"$blob/azcopy.tar.gz.sha256"
  printf '%s\n' "$stamp" >"$blob/.stamp"
)

prepare_lab_packages() {
  apt_install podman runc netavark aardvark-dns iptables iproute2 mmdebstrap gnupg debian-archive-keyring openssh-client ca-certificates \
    gcc libc6-dev busybox-static
}

# apt serves one caller at a time: it leaves a machine alone on which prepare_python needs it.
begin_labs() {
  "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null || return 0
  prepare_lab_packages && prepare_vm_packages && prepare_container_packages && prepare_blob_tools
}

prepare_dnf_packages() {
  apt_install rpm dnf dnf-plugins-core createrepo-c gnupg
}

prepare_apt_packages() {
  apt_install gnupg
}

prepare_vm_packages() {
  local -a packages=(qemu-system-x86 qemu-utils mmdebstrap e2fsprogs debian-archive-keyring openssh-client ca-certificates gcc libc6-dev)
  ((EUID == 0)) || packages+=(uidmap)
  apt_install "${packages[@]}"
}

# What the machine has for its own release. A node of the lab takes the files that are of its release, and fetches others itself.
prepare_container_packages() {
  local place=$root/.cache/container_packages stamp
  local -a packages=(docker.io containerd runc tini busybox-static)
  command -v apt-get >/dev/null || return 0
  stamp="$(sed -n 's/^VERSION_ID=//p' /etc/os-release) ${packages[*]}"
  if [[ $(cat "$place/.stamp" 2>/dev/null) == "$stamp" ]]; then
    return 0
  fi
  say "Fetching packages: ${packages[*]}"
  rm -rf "$place"
  mkdir -p "$place/debs"
  if ! (cd "$place/debs" && quietly container-packages apt-get --quiet download "${packages[@]}") 2>/dev/null; then
    ((EUID)) || quietly apt-update apt-get --quiet update
    (cd "$place/debs" && quietly container-packages apt-get --quiet download "${packages[@]}")
  fi
  dpkg-deb --fsys-tarfile "$place"/debs/containerd_*.deb | tar --extract --to-stdout ./usr/bin/containerd >"$place/containerd"
  chmod +x "$place/containerd"
  (cd "$place/debs" && tar --create --file ../debs.tar --transform 's,^,archives/,' -- *.deb)
  printf '%s\n' "$stamp" >"$place/.stamp"
}
