"""The system whose logs are evaluated."""

from tests.replay.conftest import make_system as make_system
from tests.replay.conftest import system as system
