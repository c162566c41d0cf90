"""Certificates for a test, made with the openssl command: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CONFIG: Final = """\
[ca]
default_ca = authority
[authority]
dir = {folder}
database = {folder}/index.txt
new_certs_dir = {folder}
certificate = {folder}/ca.crt
private_key = {folder}/ca.key
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any
copy_extensions = copy
x509_extensions = signed
[signed]
authorityKeyIdentifier = keyid
[any]
organizationName = optional
commonName = supplied
"""

#: Longer than any machine of the tests lives.
_DAYS: Final = 3650


def missing() -> str | None:
    """Why no certificate can be made here, or None."""
    return None if shutil.which("openssl") else "openssl is not installed"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key as PEM files; `store` holds both, key first."""

    certificate: Path
    key: Path
    store: Path


class Authority:
    """Signs certificates in a folder of its own.

    Raises
    ------
    RuntimeError : openssl refuses.
    """

    def __init__(self, folder: Path, name: str = "Kinstream test authority") -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.certificate = folder / "ca.crt"
        (folder / "index.txt").touch()
        (folder / "ca.cnf").write_text(_CONFIG.format(folder=folder))
        self._key(folder / "ca.key")
        _openssl(
            "req",
            "-x509",
            "-new",
            "-key",
            str(folder / "ca.key"),
            "-subj",
            f"/CN={name}",
            # Python 3.13 is as strict as RFC 5280.
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
            "-days",
            str(_DAYS),
            "-out",
            str(self.certificate),
        )

    def sign(
        self,
        name: str,
        *hosts: str,
        expired: bool = False,
        password: str | None = None,
        organisation: str = "Kinstream",
    ) -> Certificate:
        """Make a key and a certificate for it.

        Parameters
        ----------
        hosts : subject alternative names, each `DNS:name` or `IP:address`.
        expired : its time was over years ago.
        password : encrypts the key.
        organisation : of the subject; Kubernetes takes it for a group.
        """
        stem = self._folder / name
        key, request, certificate, store = (stem.with_suffix(end) for end in (".key", ".csr", ".crt", ".pem"))
        self._key(key)
        names = ["-addext", f"subjectAltName={','.join(hosts)}"] if hosts else []
        _openssl(
            "req",
            "-new",
            "-key",
            str(key),
            "-subj",
            f"/O={organisation}/CN={name}",
            *names,
            "-out",
            str(request),
        )
        times = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"]
        _openssl(
            "ca",
            "-batch",
            "-notext",
            "-config",
            str(self._folder / "ca.cnf"),
            *(times if expired else ["-days", str(_DAYS - 1)]),
            "-in",
            str(request),
            "-out",
            str(certificate),
        )
        store.write_bytes(key.read_bytes() + certificate.read_bytes())
        if password is not None:
            locked = stem.with_suffix(".locked.key")
            _openssl("pkcs8", "-topk8", "-in", str(key), "-out", str(locked), "-passout", f"pass:{password}")
            key = locked
        return Certificate(certificate, key, store)

    def _key(self, path: Path) -> None:
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr[-1000:]}")
