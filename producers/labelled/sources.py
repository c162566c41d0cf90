"""Sources of labelled vectors, opened by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kinstream.producers.files.selection import Selection
from kinstream.producers.labelled.batch import Source
from kinstream.producers.labelled.bundled import BUNDLED, BUNDLED_PREFIX, open_bundled

_USUAL_COLUMNS: Final = Selection()


def open_source(name: str, selection: Selection = _USUAL_COLUMNS) -> Source:
    """Open a .csv, .tsv, .parquet or .npz file, or a data set of scikit-learn ("sklearn:digits").

    Raises
    ------
    SourceError : it does not exist, has an unknown kind, or its rows cannot be used.
    """
    bundled = name.removeprefix(BUNDLED_PREFIX)
    if bundled in BUNDLED:
        return open_bundled(bundled, selection)
    path = Path(name)
    if not name.startswith(BUNDLED_PREFIX) and path.suffix.lower() == ".npz":
        from kinstream.producers.files.tables import existing
        from kinstream.producers.labelled.npz_source import open_npz

        return open_npz(existing(path), selection)
    from kinstream.producers.files.bookkeeping import bookkeeping
    from kinstream.producers.files.columns import choose
    from kinstream.producers.files.tables import open_table
    from kinstream.producers.labelled.table_source import TableSource

    file = open_table(name, *(BUNDLED_PREFIX + known for known in BUNDLED))
    left_out = bookkeeping(file) if selection.features is None else ()
    columns = choose(str(path), file.names, selection, file.usable, left_out)
    return TableSource(file, columns)
