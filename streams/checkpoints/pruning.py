"""Finds the files of a partition that may be deleted: old checkpoints, and files left by crashes."""

from __future__ import annotations

from typing import Final

from kinstream.streams import failpoints
from kinstream.streams.checkpoints.files import Damaged
from kinstream.streams.checkpoints.folder import FOLDERS, CheckpointFolder, manifest_name

#: A data file that no manifest names is kept this long: its writer may only be slow.
ORPHAN_SECONDS: Final = 24 * 3600


def prune(folder: CheckpointFolder, keep: int, now: float, pinned: int | None = None) -> None:
    """Keep the newest `keep` complete checkpoints and everything newer, with every file that they name.

    That includes files that were announced and belong to no checkpoint any more. A data file is deleted with the last
    manifest naming it, or when no manifest has named it for a day. Manifests are deleted first, so that a reader who
    misses a file finds that its manifest is gone as well.

    Parameters
    ----------
    now : seconds since the epoch.
    pinned : offset of a checkpoint that is always kept.

    Raises
    ------
    CheckpointError : the store refuses.
    """
    present = folder.data_sizes()
    offsets = folder.offsets()
    kept: set[str] = set()
    freed: set[str] = set()
    going: list[int] = []
    complete = 0
    for offset in reversed(offsets):
        named, announced = _named(folder, offset)
        if complete < keep or offset == pinned:
            kept.update(named, announced)
            complete += bool(named) and all(present.get(path) == size for path, size in named.items())
        else:
            freed.update(named, announced)
            going.append(offset)
    folder.files.delete([manifest_name(offset) for offset in going], _between)
    if going:
        _between()
    for offset in set(folder.offsets()) - set(offsets):  # written meanwhile, by another owner
        kept.update(*_named(folder, offset))
    before = now - ORPHAN_SECONDS
    orphans = {path for path in present.keys() - kept - freed if _older(folder, path, before)}
    folder.files.delete(sorted(orphans | (freed - kept) & present.keys()), _between)
    for name in FOLDERS:
        folder.files.sweep(name)


def _between() -> None:
    failpoints.hit("checkpoint.during-prune")


def _named(folder: CheckpointFolder, offset: int) -> tuple[dict[str, int], set[str]]:
    """Paths and sizes of the data files of a manifest, and paths of announced ones; none if it cannot be read."""
    try:
        manifest = folder.manifest(offset)
    except (Damaged, FileNotFoundError):
        return {}, set()
    announced = {file.path for file in manifest.announced.values() if file is not None}
    return {file.path: file.size for file in manifest.files()}, announced


def _older(folder: CheckpointFolder, path: str, before: float) -> bool:
    try:
        return folder.files.modified(path) < before
    except FileNotFoundError:
        return False
