"""Makes Java's archive of the classes that a broker loads, once: with it, a broker starts in half the time."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.kafka.broker import START_SECONDS, KafkaBroker
from tests.kafka.jars import ARCHIVE, FOLDER, missing

#: What Java exits with after SIGTERM.
_TERMINATED: Final = 128 + signal.SIGTERM


class _Recorded(KafkaBroker):
    """A broker that writes the archive when it ends."""

    @property
    def archive(self) -> Path:
        return self.folder / ARCHIVE.name

    def _command(self, main: str, *arguments: str, heap: str) -> list[str]:
        program, *rest = super()._command(main, *arguments, heap=heap)
        return [program, f"-XX:ArchiveClassesAtExit={self.archive}", *rest]

    def stop(self) -> None:
        """Stop in order, and let Java write the archive to its end: Java crashes if it reads a part of one.

        Raises
        ------
        RuntimeError : Java did not end in order.
        """
        process = self._running()
        process.terminate()
        status = process.wait(START_SECONDS)
        if status != _TERMINATED:
            raise RuntimeError(f"the broker that writes {ARCHIVE.name} ended with status {status}")


def make() -> None:
    """Start a broker and stop it, unless the archive is there."""
    if ARCHIVE.exists():
        return
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, _Recorded(Path(folder)) as broker:
        broker.create_topic("loads-classes")
        broker.stop()
        broker.archive.rename(ARCHIVE)


if __name__ == "__main__":
    if missing() is None:
        make()
    sys.exit(0)
