"""The text of `/metrics`. A large page is rendered less often than it is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

#: A page that takes less processor time is rendered for each request.
CHEAP_SECONDS: Final = 0.02
#: Of a processor, at most, for a larger page; and the longest that its text is used again.
SHARE: Final = 0.05
LONGEST_SECONDS: Final = 10.0


class RenderedMetrics:
    """The page of a registry, for several threads.

    A thousand spaces have 20,000 series, half a second of a busy processor. Such a text is used again until its
    rendering is a twentieth of the time, at most for ten seconds. All series stay: Prometheus sees no increase in a
    series that begins above zero.

    Parameters
    ----------
    clock, processor : seconds, monotonic, and of this thread's processor time.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._processor = processor
        self._lock = threading.Lock()
        #: By content type: the text, and until when it is used.
        self._texts: dict[str, tuple[bytes, float]] = {}
        self._forgotten = 0

    def forget(self) -> None:
        """Render the next page anew: what this process owns has changed. It waits for no rendering."""
        self._forgotten += 1
        self._texts = {}

    def page(self, accept: str) -> tuple[str, bytes]:
        """The content type and the text for a request with that `Accept` header."""
        encode: Any
        encode, content_type = choose_encoder(accept)
        # Readers of one moment wait for one rendering.
        with self._lock:
            text, until = self._texts.get(content_type, (b"", 0.0))
            if text and self._clock() < until:
                return content_type, text
            forgotten, began = self._forgotten, self._processor()
            text = encode(self._registry)
            took = self._processor() - began
            kept = 0.0 if took < CHEAP_SECONDS else min(LONGEST_SECONDS, took / SHARE)
            if forgotten == self._forgotten:
                self._texts[content_type] = text, self._clock() + kept
            return content_type, text
