"""Imports every module of Kinstream, so that Python keeps the bytecode of what the roles use, and lists the files.

python imported.py LIST

A module that cannot be imported is an error, unless it needs a package of an extra that the image does not have.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import kinstream
from kinstream.streams.errors import PackageMissing


def import_all() -> None:
    for module in pkgutil.walk_packages(kinstream.__path__, "kinstream."):
        try:
            importlib.import_module(module.name)
        except PackageMissing:
            pass
        except ModuleNotFoundError as error:
            if (error.name or "kinstream").partition(".")[0] == "kinstream":
                raise


def files() -> list[str]:
    """The sources of all that is loaded."""
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({name for name in found if name and name.endswith(".py")})


if __name__ == "__main__":
    import_all()
    Path(sys.argv[1]).write_text("".join(f"{name}\n" for name in files()), encoding="utf-8")
