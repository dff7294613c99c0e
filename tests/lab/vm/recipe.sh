# shellcheck shell=bash
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# How the image of the VM lab's nodes is made; sourced by build, which sets `here` and `work` and offers as_root.
#   make_root     root.tar from Debian packages and rootfs/, what modules/ becomes with its kernel's headers, and another kernel
#   make_image    root.img and its kernel from root.tar
# shellcheck disable=SC2016  # what mmdebstrap's hooks expand is theirs

suite=bookworm
size=4G
# Drivers of what QEMU gives a node, of what roles and tests load, and nouveau with what it needs.
drivers=(
  'acpi/*' 'block/*' 'char/*' 'firmware/*' 'i2c/algos/*' 'infiniband/*' 'md/*' 'nvme/*' 'pci/*' 'ptp/*' 'virtio/*'
  'gpu/drm/display/*' 'gpu/drm/drm*' 'gpu/drm/nouveau/*' 'gpu/drm/ttm/*' 'platform/x86/mxm-wmi.ko' 'platform/x86/wmi.ko'
  'net/ethernet/mellanox/*' 'net/net_failover.ko' 'net/virtio_net.ko'
)

mirror() {
  if [[ -n ${LAB_MIRROR:-} ]]; then
    printf '%s\n' "$LAB_MIRROR"
  elif grep -qs '^ID=debian' /etc/os-release; then
    # The host's own mirror is the one that is known to be reachable.
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
      grep -E '/debian/?$' | head -n 1 || true
  fi
}

make_root() {
  local packages site kept left_out keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  packages=$(grep -vE '^[[:space:]]*(#|$)' "$here/packages.txt" | paste -sd,)
  site=$(mirror)
  local -a options=(
    --variant=minbase --include="$packages"
    --aptopt='APT::Install-Recommends "false"'
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*'
    # Every module that is there makes depmod slower, which runs in the guest with every package that brings one: 27 s for all.
    --dpkgopt='path-exclude=/lib/modules/*/kernel/sound/*' --dpkgopt='path-exclude=/lib/modules/*/kernel/drivers/*'
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='force-unsafe-io'
    # Copied by mmdebstrap itself: without root, what runs in its namespace cannot see into a home directory.
    --customize-hook='mkdir "$1/tmp/modules" "$1/tmp/made" "$1/tmp/kernels"'
    --customize-hook="sync-in $here/modules /tmp/modules"
    --customize-hook='"$1/tmp/modules/hook" "$1"'
    --customize-hook="sync-out /tmp/made $work/modules"
    --customize-hook="sync-in $here/rootfs /"
    --customize-hook="sync-in $here/../compiled /usr/lib/python3/dist-packages"
    --customize-hook='chroot "$1" python3 -m compileall -q /usr/lib/python3/dist-packages/lab_compiled.py'
    # After rootfs, which says what an initramfs holds.
    --customize-hook='"$1/tmp/modules/next_kernel" "$1" "$1/tmp/kernels"'
    --customize-hook="sync-out /tmp/kernels $work/kernels"
    --customize-hook='rm -r "$1/tmp/modules" "$1/tmp/made" "$1/tmp/kernels"'
    --customize-hook='chroot "$1" update-initramfs -u'
    --customize-hook='chroot "$1" systemctl --quiet enable lab-seed.service systemd-networkd.service'
    # Timers and the like that would compete with what is tested.
    --customize-hook='chroot "$1" systemctl --quiet disable apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty@tty1.service munge.service nvmefc-boot-connections.service nvmf-autoconnect.service slurmctld.service slurmd.service smartmontools.service systemd-networkd-wait-online.service systemd-pstore.service'
    # What no role and no test asks of systemd, and every boot under emulation pays for.
    --customize-hook='chroot "$1" systemctl --quiet mask dev-hugepages.mount dev-mqueue.mount modprobe@configfs.service modprobe@drm.service modprobe@fuse.service modprobe@loop.service proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-tracing.mount systemd-binfmt.service systemd-rfkill.socket systemd-tmpfiles-clean.timer systemd-update-utmp-runlevel.service systemd-update-utmp.service'
    # What makes a machine itself is handed over at its first boot, never copied.
    --customize-hook='rm -f "$1"/etc/ssh/ssh_host_*_key* "$1/etc/munge/munge.key"; : > "$1/etc/machine-id"; printf "nameserver 10.0.2.3\n" > "$1/etc/resolv.conf"'
  )
  for kept in "${drivers[@]}"; do
    options+=(--dpkgopt="path-include=/lib/modules/*/kernel/drivers/$kept")
  done
  for left_out in bridge can ipv4/netfilter ipv6/netfilter sched; do
    options+=(--dpkgopt="path-exclude=/lib/modules/*/kernel/net/$left_out/*")
  done
  mkdir "$work/modules" "$work/kernels"
  ((EUID == 0)) || options+=(--mode=unshare)
  [[ -r $keyring ]] && options+=(--keyring="$keyring")
  mmdebstrap "${options[@]}" "$suite" "$work/root.tar" ${site:+"$site"} >&2
}

# In one go: outside the namespace the files would belong to somebody else.
make_image() {
  as_root env work="$work" size="$size" bash -euo pipefail -c '
    mkdir "$work/root"
    tar --extract --directory "$work/root" --file "$work/root.tar" --numeric-owner --xattrs --xattrs-include="*" --exclude="./dev/*"
    # The kernel that a node runs is the one beside the image; its own copy is what tools expect to find.
    kernel=$(ls "$work/root/lib/modules")
    for file in vmlinuz initrd.img; do
      cp "$work/root/boot/$file-$kernel" "$work/kernels/$kernel/$file"
    done
    ln -s "$kernel" "$work/kernels/default"
    mke2fs -q -t ext4 -L lab-root -d "$work/root" "$work/root.img" "$size"
    chmod 644 "$work"/kernels/*/vmlinuz "$work"/kernels/*/initrd.img "$work/root.img"
    rm -rf "$work/root" "$work/root.tar"
  ' >&2
}
