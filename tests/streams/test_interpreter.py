"""With NUMBA_DISABLE_JIT=1, which people set to step through the code, the interpreter runs the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kinstream.learners import registry
from kinstream.learners.warm_up import part
from kinstream.processors.warm_up import COMPILED

ROOT = Path(__file__).parents[2]
#: Not run here: the interpreter needs minutes for each. They call the same kernels, and some of their own.
SLOW = ("kernel-lego", "mixture", "oahu", "omdl-lr-like")
#: Learns from triplets of its own, and saves distances of the model; then every kernel of the builders runs once.
SCRIPT = """
import sys, warnings
import numpy as np
from kinstream.learners.registry import create
from kinstream.learners.held_out.compiling import compile_held_out
from kinstream.learners.warm_up import warm_up
from kinstream.processors.warm_up import warm_up as warm_up_builders
from kinstream.search.index.warm_up import warm_up_all
from kinstream.streams.compute.philox import philox, sample

warnings.simplefilter("error", RuntimeWarning)
kinds, builders = sys.argv[2].split(), sys.argv[3].split()
draw = np.random.default_rng(0)
x, y, z = draw.normal(size=(3, 200, 4)).astype(np.float32)
found = {
    "philox": np.array(philox(np.uint64(1), np.uint64(2), 3, 4, 5, 6)),
    "sample": sample(1000, 5, np.uint64(1), np.uint64(2), 3, 4, 5),
}
for kind in kinds:
    learner = create(kind)
    if not hasattr(learner, "learn_triplets"):
        continue
    learner.learn_triplets(x, y, z)
    found[kind] = learner.distance(x[:20], y[:20])
np.savez(sys.argv[1], **found)
if len(sys.argv) > 4:
    for kind in kinds:
        warm_up(kind)
    warm_up_builders(tuple(builders))
    warm_up_all()
    compile_held_out()
"""


def run(file: Path, kinds: list[str], *builders: str, disabled: bool) -> dict[str, np.ndarray]:
    command = [sys.executable, "-c", SCRIPT, str(file), " ".join(kinds), " ".join(builders)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": str(int(disabled)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *(["all"] if disabled and builders else [])],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return dict(np.load(file))


def check(kinds: list[str], tmp_path: Path, *builders: str) -> None:
    own = run(tmp_path / "own.npz", kinds, *builders, disabled=True)
    compiled = run(tmp_path / "compiled.npz", kinds, disabled=False)
    assert own.keys() == compiled.keys()
    for name, values in own.items():
        np.testing.assert_allclose(values, compiled[name], rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.long
def test_the_interpreter_runs_kernels_with_the_same_result_to_rounding(tmp_path: Path) -> None:
    check(["copml", "opml"], tmp_path)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_interpreter_runs_kernels_of_all_other_kinds_and_of_builders(tmp_path: Path) -> None:
    found = [kind for kind in registry.names() if part(kind) and kind not in SLOW]
    assert len(found) > 20
    check(found, tmp_path, *COMPILED)
