"""Users of the secured broker, what their processes find in the environment, and kafka-acls.sh."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.streams.errors import KinstreamError
from kinstream.streams.kafka.rights.acls import Grant
from tests.kafka.secured_broker import ADMIN, SecuredBroker
from tests.support import processes

#: Variables that would speak for another cluster or another user.
_KAFKA: Final = "KAFKA_"
until = partial(processes.until, seconds=60.0)


def by_password(broker: SecuredBroker, name: str, password: str, listener: str = "SCRAM") -> dict[str, str]:
    """The environment of somebody who logs in by password."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": broker.at(listener),
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_USERNAME": name,
        "KAFKA_SASL_PASSWORD": password,
        "KAFKA_SSL_CA_FILE": str(broker.authority.certificate),
    }


def by_certificate(broker: SecuredBroker, name: str, password: str) -> dict[str, str]:
    """The environment of somebody who shows a certificate, whose key is locked."""
    own = broker.client_certificate(name, password)
    return {
        "KAFKA_BOOTSTRAP_SERVERS": broker.at("MUTUAL"),
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_SSL_CA_FILE": str(broker.authority.certificate),
        "KAFKA_SSL_CERTIFICATE_FILE": str(own.certificate),
        "KAFKA_SSL_KEY_FILE": str(own.key),
        "KAFKA_SSL_KEY_PASSWORD": password,
    }


def recipe(title: str, **here: str) -> dict[str, str]:
    """The environment that the first recipe after these words in docs/security.md sets.

    Parameters
    ----------
    here : values of this machine for variables that the recipe sets; it must set each of them.
    """
    text = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
    block = text.partition(title)[2].partition("```sh\n")[2].partition("```")[0]
    lines = [line.removeprefix("export ") for line in block.splitlines()]
    found = dict(word.split("=", 1) for line in lines for word in shlex.split(line))
    assert here.keys() <= found.keys(), here.keys() - found.keys()
    return found | here


def as_admin(broker: SecuredBroker) -> dict[str, str]:
    return by_password(broker, ADMIN, broker.admin_password)


@contextmanager
def acting_as(patch: pytest.MonkeyPatch, environment: dict[str, str]) -> Iterator[None]:
    """This process is that user for a while."""
    with patch.context() as inner:
        for name in [name for name in os.environ if name.startswith(_KAFKA)]:
            inner.delenv(name)
        for name, value in environment.items():
            inner.setenv(name, value)
        yield


def command(config: Path, *arguments: str) -> Result:
    """Run a command in this process; its error, if any, is in the result."""
    return CliRunner().invoke(cli, ["--config", str(config), *arguments])


def ended(result: Result) -> tuple[int, str]:
    """Exit status, and what a person would have read, of a command."""
    if isinstance(result.exception, KinstreamError):
        return result.exception.exit_status, f"{result.output}kinstream: {result.exception}"
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result.exit_code, result.output


def kafka_acls(broker: SecuredBroker, lines: Sequence[str]) -> list[Grant]:
    """What kafka-acls.sh would do with these lines, done by an admin client."""
    done = []
    for line in lines:
        principal, grant = read_line(line)
        broker.allow(principal, [grant])
        done.append(grant)
    return done


def read_line(line: str) -> tuple[str, Grant]:
    """Principal and grant of one line for kafka-acls.sh."""
    program, *words = shlex.split(line)
    assert program == "kafka-acls.sh" and "--add" in words, line
    words.remove("--add")
    options = list(zip(words[::2], words[1::2], strict=True))
    one = dict(options)
    assert set(one) <= {
        "--bootstrap-server",
        "--command-config",
        "--allow-principal",
        "--operation",
        "--topic",
        "--group",
        "--resource-pattern-type",
    }, line
    (resource,) = {"--topic", "--group"} & set(one)
    operations = [value for name, value in options if name == "--operation"]
    spelled = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
    return one["--allow-principal"], Grant(
        resource.removeprefix("--"),
        one[resource],
        tuple(spelled.get(value, value.upper()) for value in operations),
        "",
        prefixed=one.get("--resource-pattern-type") == "prefixed",
    )
