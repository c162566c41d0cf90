#!/bin/sh
# The steps of deploy/Containerfile, which runs only this file: it puts Kinstream, its packages and its compiled kernels into
# one folder that is never written again.
#
#     deploy/build_steps.sh SOURCE PREFIX
#
# From the environment, each with the name of the image's build argument:
#   EXTRAS           extras of pyproject.toml (worker,learn,files,baselines,search)
#   PACKAGES         more packages, such as that of an object store: s3fs, gcsfs, adlfs
#   CONSTRAINTS      a file with versions for pip: deploy/constraints.txt, where you keep the requirements.txt of an earlier image
#   TORCH_INDEX_URL  where torch comes from: the CPU index that PyTorch's install page names. Empty: no torch
#   CPU              target CPU of the kernels, a CPU name of LLVM (generic)
#   KERNELS          kinds of learners and builders to compile; empty: all
set -eu
source=$(realpath "$1")
mkdir -p "$2"
prefix=$(realpath "$2")
venv=$prefix/venv
python=$venv/bin/python

step() { echo "== $*" >&2; }

pip_install() {
    # Compiled below, after the files have their final times.
    "$python" -m pip install --quiet --disable-pip-version-check --no-compile ${CONSTRAINTS:+--constraint "$source/$CONSTRAINTS"} "$@"
}

step "virtual environment"
"${PYTHON:-python3}" -m venv --clear "$venv"

if [ -n "${TORCH_INDEX_URL:-}" ]; then
    step "torch without CUDA"
    # The default index has torch with CUDA: gigabytes that no worker needs.
    torch=$("$python" -c 'import sys, tomllib
print(tomllib.load(open(sys.argv[1], "rb"))["project"]["optional-dependencies"]["torch"][0])' "$source/pyproject.toml")
    pip_install --index-url "$TORCH_INDEX_URL" "$torch"
fi

step "Kinstream"
# shellcheck disable=SC2086
pip_install "$source[${EXTRAS-worker,learn,files,baselines,search}]" ${PACKAGES:-}
"$python" -m pip freeze --disable-pip-version-check --exclude kinstream > "$prefix/requirements.txt"
"$python" -m pip uninstall --quiet --yes --disable-pip-version-check pip

step "bytecode"
# The kernels' cache stores modification times with fractions of a second; the layers of an image keep whole seconds.
"$python" - "$venv" "${SOURCE_DATE_EPOCH:-946684800}" <<'END'
import os, pathlib, sys
for path in pathlib.Path(sys.argv[1], "lib").rglob("*.py"):
    os.utime(path, (int(sys.argv[2]), int(sys.argv[2])))
END
"$python" -m compileall -q -j 0 "$venv/lib" || true  # some packages carry files for another Python

step "kernels"
# numba finds kernels by their target CPU. Without an explicit name and feature set, the target would be this machine's CPU.
printf 'export NUMBA_CPU_NAME=%s NUMBA_CPU_FEATURES=\n' "${CPU:-generic}" > "$prefix/cpu.sh"
mkdir -p "$prefix/bin" "$prefix/kernels"
install -m 755 "$source/deploy/entrypoint.sh" "$prefix/bin/kinstream"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
(
    . "$prefix/cpu.sh"
    export NUMBA_CACHE_DIR="$prefix/kernels" PYTHONDONTWRITEBYTECODE=1
    # shellcheck disable=SC2086
    "$venv/bin/kinstream" warm-up ${KERNELS:-}
)
chmod -R a+rX,go-w "$prefix"

step "are the kernels found?"
# shellcheck disable=SC2086
TMPDIR=$scratch NUMBA_DEBUG_CACHE=1 PYTHONDONTWRITEBYTECODE=1 "$prefix/bin/kinstream" warm-up --jobs 1 ${KERNELS:-} > "$scratch/log"
if grep "data saved" "$scratch/log" >&2; then
    echo "these kernels were compiled again: the image would compile them at every start" >&2
    exit 1
fi
grep -q "data loaded" "$scratch/log"
