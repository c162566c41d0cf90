#!/bin/sh
# The steps of deploy/Containerfile up to its root file system: they put Kinstream, its packages, their bill of materials
# and the compiled kernels into one folder that is never written again.
#
#     deploy/image/build_steps.sh SOURCE PREFIX
#
# From the environment, each with the name of the image's build argument:
#   EXTRAS           extras of pyproject.toml (worker,learn,files,baselines,serve,pgvector,otel)
#   PACKAGES         more packages, such as that of an object store: s3fs, gcsfs, adlfs
#   CONSTRAINTS      a file with versions for pip: deploy/constraints.txt, where you keep the requirements.txt of an earlier image
#   TORCH_INDEX_URL  where torch comes from: the CPU index that PyTorch's install page names. Empty: no torch
#   CPU              target CPU of the kernels, a CPU name of LLVM (generic)
#   KERNELS          kinds of learners and builders to compile, or "all" (mixture,opml,copml,lego,oasis,omdml,lomdml,soml-tg,adapter,euclidean,one-pass,clicks,closure,index)
set -eu
source=$(realpath "$1")
mkdir -p "$2"
prefix=$(realpath "$2")
venv=$prefix/venv
python=$venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

step() { echo "== $*" >&2; }

pip_install() {
    # Compiled below, after the files have their final times.
    "$python" -m pip install --quiet --disable-pip-version-check --no-compile ${CONSTRAINTS:+--constraint "$source/$CONSTRAINTS"} "$@"
}

step "virtual environment"
"${PYTHON:-python3}" -m venv --clear "$venv"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

if [ -n "${TORCH_INDEX_URL:-}" ]; then
    step "torch without CUDA"
    # The default index has torch with CUDA: gigabytes that no worker needs.
    torch=$("$python" -c 'import sys, tomllib
print(tomllib.load(open(sys.argv[1], "rb"))["project"]["optional-dependencies"]["torch"][0])' "$source/pyproject.toml")
    pip_install --index-url "$TORCH_INDEX_URL" "$torch"
fi

step "Kinstream"
# shellcheck disable=SC2086
pip_install "$source[${EXTRAS-worker,learn,files,baselines,serve,pgvector,otel}]" ${PACKAGES:-}
"$python" -m pip check --disable-pip-version-check >&2
"$python" -m pip freeze --disable-pip-version-check --exclude kinstream > "$prefix/requirements.txt"
unused=pip
# A new environment of Python 3.11 has it; torch needs it.
[ -d "$packages/torch" ] || unused="$unused setuptools"
# shellcheck disable=SC2086
"$python" -m pip uninstall --quiet --yes --disable-pip-version-check $unused

step "bill of materials"
"${PYTHON:-python3}" -m venv "$scratch/tools"
"$scratch/tools/bin/python" -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
"$scratch/tools/bin/cyclonedx-py" environment --pyproject "$source/pyproject.toml" --mc-type application --output-reproducible \
    --output-format JSON --output-file "$prefix/sbom.cdx.json" "$python"

step "trim"
"$python" "$source/deploy/image/trim.py" "$packages"

step "bytecode"
# The kernels' cache stores modification times with fractions of a second; the layers of an image keep whole seconds.
"$python" - "$packages" "${SOURCE_DATE_EPOCH:-946684800}" <<'END'
import os, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    os.utime(path, (int(sys.argv[2]), int(sys.argv[2])))
END
cd "$scratch"
# Of the modules that are imported: these are a third of all.
"$python" "$source/deploy/image/imported.py" "$prefix/imported.txt"

step "kernels"
# numba finds kernels by their target CPU. Without an explicit name and feature set, the target would be this machine's CPU.
echo "${CPU:-generic}" > "$prefix/cpu"
mkdir -p "$prefix/bin" "$prefix/kernels"
{
    echo "#!$python -IS"
    cat "$source/deploy/image/entrypoint.py"
} > "$prefix/bin/kinstream"
chmod 755 "$prefix/bin/kinstream"
kernels=$(echo "${KERNELS:-mixture,opml,copml,lego,oasis,omdml,lomdml,soml-tg,adapter,euclidean,one-pass,clicks,closure,index}" | tr ',' ' ')
echo "$kernels" > "$prefix/kernels.txt"
[ "$kernels" != all ] || kernels=
# shellcheck disable=SC2086
NUMBA_CPU_NAME=${CPU:-generic} NUMBA_CPU_FEATURES='' NUMBA_CACHE_DIR="$prefix/kernels" "$venv/bin/kinstream" warm-up $kernels >&2
chmod -R a+rX,go-w "$prefix"

step "are the kernels found?"
# shellcheck disable=SC2086
TMPDIR=$scratch NUMBA_DEBUG_CACHE=1 PYTHONDONTWRITEBYTECODE=1 "$prefix/bin/kinstream" warm-up --jobs 1 $kernels > "$scratch/log"
if grep "data saved" "$scratch/log" >&2; then
    echo "these kernels were compiled again: the image would compile them at every start" >&2
    exit 1
fi
grep -q "data loaded" "$scratch/log"
