#!/bin/sh
# `kinstream` of the image: with the kernels that were compiled when it was built.
set -eu
prefix=$(dirname "$(dirname "$(readlink -f "$0")")")
. "$prefix/cpu.sh"
# numba ignores a cache in which it cannot write. So it gets a folder of links to the cache of the image, which stays unchanged:
# a missing kernel is compiled and kept for the life of the container.
export NUMBA_CACHE_DIR="${TMPDIR:-/tmp}/kinstream-kernels"
if [ ! -d "$NUMBA_CACHE_DIR" ]; then
    made=$(mktemp -d "$NUMBA_CACHE_DIR.XXXXXX")
    cp -rs "$prefix/kernels/." "$made"
    # Another process of this container may have been quicker.
    mv -T "$made" "$NUMBA_CACHE_DIR" 2> /dev/null || rm -rf "$made"
fi
exec "$prefix/venv/bin/kinstream" "$@"
