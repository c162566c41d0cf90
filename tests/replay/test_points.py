"""Places in a log, as commands take them."""

from __future__ import annotations

import pytest

from kinstream.replay.log.sources import parse_point
from kinstream.streams.errors import SettingsError


def test_points_are_offsets_or_times() -> None:
    assert parse_point("17").offset == 17
    assert parse_point("1970-01-01T00:00:01").time_ms == 1000
    assert parse_point("1970-01-01T01:00:01+01:00").time_ms == 1000
    with pytest.raises(SettingsError, match="neither an offset nor an ISO 8601 time"):
        parse_point("-4")
