"""A broker as in production: SASL_SSL with SCRAM-SHA-512, mutual TLS, and an authoriser that allows nothing by itself.

Further listeners show certificates that a client must refuse: one that has expired, one for another host.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kinstream.streams.kafka.rights.acls import Grant
from tests.kafka.broker import ANSWER_SECONDS, KafkaBroker, reserve_port
from tests.kafka.certificates import Authority, Certificate

# As Any: its stubs do not name what is used here.
api: Any = import_module("confluent_kafka.admin")

HERE: Final = ("IP:127.0.0.1", "DNS:localhost")
ADMIN: Final = "admin"
#: Listeners with a login by password; each shows another certificate.
LOGINS: Final = ("SCRAM", "EXPIRED", "ELSEWHERE")
#: MUTUAL wants a client certificate; PLAIN speaks no TLS, and who comes there is nobody.
PROTOCOLS: Final = {**dict.fromkeys(LOGINS, "SASL_SSL"), "MUTUAL": "SSL", "PLAIN": "PLAINTEXT"}

_NETWORK: Final = """\
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=MUTUAL
listener.security.protocol.map={map},CONTROLLER:SSL
ssl.keystore.type=PEM
ssl.keystore.location={good}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT
listener.name.mutual.ssl.client.auth=required
listener.name.controller.ssl.client.auth=required
listener.name.expired.ssl.keystore.location={expired}
listener.name.elsewhere.ssl.keystore.location={elsewhere}
sasl.enabled.mechanisms=SCRAM-SHA-512
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:broker;User:{admin}
"""
_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredBroker(KafkaBroker):
    """One broker that lets nobody in without a name, and nobody do what no ACL says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.authority = Authority(folder / "authority")
        self.stranger = Authority(folder / "stranger", "Another authority")
        self._good = self.authority.sign("broker", *HERE)
        self._expired = self.authority.sign("expired-broker", *HERE, expired=True)
        self._elsewhere = self.authority.sign("elsewhere-broker", "DNS:kafka.example.org")
        self.admin_password = os.urandom(12).hex()
        self._listeners: dict[str, socket.socket] = {name: reserve_port() for name in PROTOCOLS}
        self._reserved += self._listeners.values()

    def at(self, listener: str) -> str:
        """The address of a listener: one of `PROTOCOLS`."""
        return f"127.0.0.1:{self._listeners[listener].getsockname()[1]}"

    @property
    def bootstrap(self) -> str:
        return self.at("SCRAM")

    def _network(self) -> str:
        text = _NETWORK.format(
            controller=self._controller,
            listeners=",".join(f"{name}://{self.at(name)}" for name in PROTOCOLS),
            map=",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            good=self._good.store,
            expired=self._expired.store,
            elsewhere=self._elsewhere.store,
            authority=self.authority.certificate,
            admin=ADMIN,
        )
        jaas = (f"listener.name.{name.lower()}.scram-sha-512.sasl.jaas.config={_JAAS}\n" for name in LOGINS)
        return text + "".join(jaas)

    def _format_options(self) -> list[str]:
        return ["--add-scram", f"SCRAM-SHA-512=[name={ADMIN},password={self.admin_password}]"]

    def _login(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": ADMIN,
            "sasl.password": self.admin_password,
            "ssl.ca.location": str(self.authority.certificate),
        }

    def kafka_acls(self, *arguments: str) -> str:
        """Run kafka-acls.sh; what it printed.

        Raises
        ------
        RuntimeError : it ended badly.
        """
        command = self._command("org.apache.kafka.tools.AclCommand", *arguments, heap="128m")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"kafka-acls.sh: {(done.stdout + done.stderr)[-1000:]}")
        return done.stdout

    def admin_properties(self) -> Path:
        """The file with which kafka-acls.sh logs in."""
        path = self.folder / "admin.properties"
        login = f'username="{ADMIN}" password="{self.admin_password}"'
        path.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.authority.certificate}\n"
            f"sasl.jaas.config={_JAAS.removesuffix(';')} {login};\n"
        )
        return path

    # ---- who may come in, and what they may do ------------------------------------------------------------------

    def add_user(self, name: str, password: str) -> None:
        """Let a user in by password, or give them another one."""
        told = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_512, 4096)
        self._scram(api.UserScramCredentialUpsertion(name, told, password.encode()))

    def remove_user(self, name: str) -> None:
        self._scram(api.UserScramCredentialDeletion(name, api.ScramMechanism.SCRAM_SHA_512))

    def _scram(self, change: Any) -> None:
        admin: Any = self.admin()
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(ANSWER_SECONDS)

    def client_certificate(self, name: str, password: str | None = None) -> Certificate:
        """A certificate of a client, whose principal is its name."""
        return self.authority.sign(name, password=password)

    def allow(self, principal: str, grants: Iterable[Grant]) -> None:
        """Create the ACLs of these grants."""
        admin = self.admin()
        for done in admin.create_acls(bindings(principal, grants)).values():
            done.result(ANSWER_SECONDS)

    def withdraw(self, principal: str, grants: Iterable[Grant] | None = None) -> None:
        """Delete the ACLs of these grants; without, every ACL of a principal."""
        kinds, permission = api.ResourcePatternType, api.AclPermissionType.ANY
        asked = [
            api.AclBindingFilter(
                b.restype, b.name, b.resource_pattern_type, b.principal, None, b.operation, permission
            )
            for b in bindings(principal, grants or ())
        ]
        if grants is None:
            every = (api.ResourceType.ANY, None, kinds.ANY, principal, None, api.AclOperation.ANY, permission)
            asked = [api.AclBindingFilter(*every)]
        admin = self.admin()
        for done in admin.delete_acls(asked).values():
            done.result(ANSWER_SECONDS)


def bindings(principal: str, grants: Iterable[Grant]) -> list[Any]:
    """Grants in the words of an admin client."""
    return [
        api.AclBinding(
            api.ResourceType[grant.resource.upper()],
            grant.name,
            api.ResourcePatternType.PREFIXED if grant.prefixed else api.ResourcePatternType.LITERAL,
            principal,
            "*",
            api.AclOperation[operation],
            api.AclPermissionType.ALLOW,
        )
        for grant in grants
        for operation in grant.operations
    ]
