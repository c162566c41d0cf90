#!/bin/sh
# Runs a command as a container of the image would run it: without rights, as user 10001, with nothing to write in but /tmp.
#
#     unshare --mount sh read_only.sh COMMAND...
#
# Mounts are this process's own. The user is one of a namespace of its own, so files of whoever runs the tests can be read.
set -eu
mount --make-rprivate /
mount -o remount,bind,ro /
# What is to run may lie below /tmp itself: it is put back over the new one.
case "${PREFIX:-}" in /tmp/*) mount -n --bind "$PREFIX" /mnt ;; esac
mount -t tmpfs -o mode=1777 tmpfs /tmp
case "${PREFIX:-}" in /tmp/*) mkdir -p "$PREFIX" && mount -n --move /mnt "$PREFIX" ;; esac
cd /tmp
exec unshare --user --map-user=10001 --map-group=10001 "$@"
