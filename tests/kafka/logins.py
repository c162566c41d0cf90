"""A broker with the two logins of hosted Kafkas, over TLS: tokens of an OpenID provider, and PLAIN."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from tests.kafka.broker import KafkaBroker, reserve_port
from tests.kafka.certificates import Authority

#: The audience that the broker expects.
AUDIENCE: Final = "kafka.example.org"
_SECURITY: Final = "org.apache.kafka.common.security"
# Without the prefix of a listener: with it Kafka 4.1 reads neither audience nor expiry of a token.
_NETWORK: Final = """\
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OAUTH:SASL_SSL,CLOUD:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={store}
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config={security}.oauthbearer.OAuthBearerLoginModule required;
listener.name.oauth.oauthbearer.sasl.server.callback.handler.class={security}.oauthbearer.OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.jwt.validator.class={security}.oauthbearer.BrokerJwtValidator
sasl.oauthbearer.jwks.endpoint.url={keys}
sasl.oauthbearer.expected.audience={audience}
sasl.oauthbearer.expected.issuer={issuer}
sasl.oauthbearer.clock.skew.seconds=0
listener.name.oauth.oauthbearer.connections.max.reauth.ms=3600000
listener.name.cloud.sasl.enabled.mechanisms=PLAIN
listener.name.cloud.plain.sasl.jaas.config={security}.plain.PlainLoginModule required user_{key}="{secret}";
"""


class HostedBroker(KafkaBroker):
    """One broker. Listener OAUTH takes tokens, CLOUD an API key and its secret, PLAINTEXT is the administrator's.

    Parameters
    ----------
    keys : URL of the keys (JWKS) that sign tokens.
    issuer : that tokens must name.
    api_key : user and password of the listener CLOUD.
    """

    def __init__(self, folder: Path, keys: str, issuer: str, api_key: tuple[str, str]) -> None:
        super().__init__(folder)
        self._keys, self._issuer, self._api_key = keys, issuer, api_key
        self.authority = Authority(folder / "authority")
        self._store = self.authority.sign("broker", "IP:127.0.0.1", "DNS:localhost").store
        self._more: dict[str, socket.socket] = {name: reserve_port() for name in ("OAUTH", "CLOUD")}
        self._reserved += self._more.values()

    def at(self, listener: str) -> str:
        """The address of OAUTH or CLOUD."""
        return f"127.0.0.1:{self._more[listener].getsockname()[1]}"

    def _network(self) -> str:
        listeners = [
            f"PLAINTEXT://127.0.0.1:{self.port}",
            *(f"{name}://{self.at(name)}" for name in self._more),
        ]
        return _NETWORK.format(
            controller=self._controller,
            listeners=",".join(listeners),
            store=self._store,
            security=_SECURITY,
            keys=self._keys,
            issuer=self._issuer,
            audience=AUDIENCE,
            key=self._api_key[0],
            secret=self._api_key[1],
        )

    def _command(self, main: str, *arguments: str, heap: str) -> list[str]:
        program, *rest = super()._command(main, *arguments, heap=heap)
        return [program, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys}", *rest]
