#!/bin/sh
# Runs a command as a container of the image would run it: without rights, as user 10001, with nothing to write in but /tmp.
#
#     PREFIX=FOLDER unshare --mount sh read_only.sh COMMAND...
#
# Mounts are this process's own. The user is one of a namespace of its own, so files of whoever runs the tests can be read.
set -eu
mount --make-rprivate /
mount -o remount,bind,ro /
# What is to run may lie below /tmp itself: it is put back over the new one.
mount -n --bind "$PREFIX" /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$PREFIX"
mount -n --move /mnt "$PREFIX"
cd /tmp
exec unshare --user --map-user=10001 --map-group=10001 "$@"
