"""`kinstream` of the image: with the kernels that were compiled when it was built. The image has no shell."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

PREFIX = Path(__file__).resolve().parent.parent
CACHE = Path(tempfile.gettempdir()) / "kinstream-kernels"

# numba ignores a cache in which it cannot write. So it gets a folder of links to the cache of the image, which stays
# unchanged: a missing kernel is compiled and kept for the life of the container.
if not CACHE.is_dir():
    made = tempfile.mkdtemp(prefix=f"{CACHE.name}.", dir=CACHE.parent)
    shutil.copytree(PREFIX / "kernels", made, copy_function=os.symlink, dirs_exist_ok=True)
    try:
        os.rename(made, CACHE)
    except OSError:
        # Another process of this container was quicker.
        shutil.rmtree(made)

os.environ |= {
    "NUMBA_CPU_NAME": (PREFIX / "cpu").read_text(encoding="utf-8").strip(),
    "NUMBA_CPU_FEATURES": "",
    "NUMBA_CACHE_DIR": str(CACHE),
}
command = PREFIX / "venv" / "bin" / "kinstream"
os.execv(command, [str(command), *sys.argv[1:]])
