"""One source of tokens for all clients of a process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from kinstream.streams.errors import BrokerUnavailable, KinstreamError
from kinstream.streams.kafka.tokens import msk_iam, oidc
from kinstream.streams.kafka.tokens.token import Away, Token
from kinstream.streams.secrets import hide
from kinstream.streams.settings import KafkaSettings

log = logging.getLogger("kinstream.tokens")

#: Share of a token's life after which another is fetched; librdkafka renews at the same share.
RENEW_AT: Final = 0.8
#: Seconds after a failure in which the endpoint is not asked again.
PAUSE_SECONDS: Final = 1.0


class TokenSource:
    """Fetches a token when one is needed, and keeps it until most of its life is over.

    A failed renewal is logged, and the token is used until it expires.

    Parameters
    ----------
    fetch : makes a token; raises LoginRefused, Away or SettingsError.
    clock : seconds since 1970.
    """

    def __init__(self, fetch: Callable[[], Token], clock: Callable[[], float] = time.time) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_at = 0.0
        #: The newest token.
        self.newest: Token | None = None
        #: Why the last attempt failed; None if it did not.
        self.failure: KinstreamError | None = None

    def token(self) -> Token:
        """A token that has not expired. Blocks while one is fetched.

        Raises
        ------
        LoginRefused : the endpoint refuses this client.
        BrokerUnavailable : it is away; the same call may succeed later.
        SettingsError : a file or package that is needed cannot be used.
        """
        with self._lock:
            now, held = self._clock(), self.newest
            if held is not None and now < held.fetched + (held.expires - held.fetched) * RENEW_AT:
                return held
            if self.failure is None or not 0 <= now - self._failed_at < PAUSE_SECONDS:
                self._renew()
            if self.failure is None:
                assert self.newest is not None
                return self.newest
            if held is not None and now < held.expires:
                return held
            raise self.failure

    def _renew(self) -> None:
        before = self.failure
        try:
            self.newest, self.failure = self._fetch(), None
        except (Away, KinstreamError) as error:
            self._failed_at = self._clock()
            self.failure = BrokerUnavailable(hide(str(error))) if isinstance(error, Away) else error
            if before is None or str(before) != str(self.failure):
                log.warning("no token for the brokers: %s", self.failure)
        else:
            if before is not None:
                log.info("the brokers' tokens can be fetched again")


@lru_cache(maxsize=8)
def source_of(kafka: KafkaSettings) -> TokenSource:
    """The source for these settings, which all clients of this process share."""
    if kafka.sasl_mechanism == "AWS_MSK_IAM":
        return TokenSource(msk_iam.fetch)
    return TokenSource(lambda: oidc.fetch(kafka))


def have_token(kafka: KafkaSettings) -> None:
    """Fetch the token before a client starts, which would wait for it and give no reason; errors of `token`."""
    if kafka.by_token:
        source_of(kafka).token()
