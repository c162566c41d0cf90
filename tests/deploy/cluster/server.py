"""etcd and kube-apiserver on loopback, with ports, folder and certificates of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import subprocess
import time
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import httpx
import yaml

from tests.deploy.go_tools import API_SERVER, HELM, tool
from tests.kafka.broker import reserve_port
from tests.kafka.certificates import Authority

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0
HELM_SECONDS: Final = 120.0

Document = dict[str, Any]


class RefusedError(Exception):
    """The API server refuses a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


def missing() -> str | None:
    """Which Debian package is missing, or None."""
    lacking = {"etcd": "etcd-server", "openssl": "openssl"}
    found = [package for program, package in lacking.items() if shutil.which(program) is None]
    return f"Debian packages are missing: {', '.join(found)}" if found else None


class ApiServer:
    """One API server and its etcd; a context manager that ends both.

    Parameters
    ----------
    folder : for data, logs and certificates; it must not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority(folder / "certificates", "Test cluster")
        self._ca = authority.certificate
        self._server = authority.sign("kube-apiserver", "DNS:localhost", "IP:127.0.0.1")
        self._admin = authority.sign("admin", organisation="system:masters")
        self._reserved = [reserve_port() for _ in range(3)]
        self.port, self._etcd, self._peer = (int(one.getsockname()[1]) for one in self._reserved)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(self._kubeconfig()))
        self.kubeconfig.chmod(0o600)
        context = ssl.create_default_context(cafile=str(self._ca))
        context.load_cert_chain(self._admin.certificate, self._admin.key)
        self._client = httpx.Client(base_url=f"https://127.0.0.1:{self.port}", verify=context, timeout=30.0)

    # ---- life ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start("etcd", self._etcd_command())
            self._start("kube-apiserver", self._api_command())
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The API server before its store.
        for process in reversed(self._processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
            process.wait()
        self._processes.clear()
        self._client.close()
        for one in self._reserved:
            one.close()

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder
            )
        self._processes.append(process)

    def _etcd_command(self) -> list[str]:
        client, peer = (f"https://127.0.0.1:{port}" for port in (self._etcd, self._peer))
        options = {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        for part in ("", "peer-"):
            options |= {
                f"{part}cert-file": self._server.certificate,
                f"{part}key-file": self._server.key,
                f"{part}trusted-ca-file": self._ca,
                f"{part}client-cert-auth": "true",
            }
        return ["etcd", *(f"--{name}={value}" for name, value in options.items())]

    def _api_command(self) -> list[str]:
        options = {
            "etcd-servers": f"https://127.0.0.1:{self._etcd}",
            "etcd-cafile": self._ca,
            "etcd-certfile": self._server.certificate,
            "etcd-keyfile": self._server.key,
            "bind-address": "127.0.0.1",
            "secure-port": self.port,
            "cert-dir": self.folder,
            "tls-cert-file": self._server.certificate,
            "tls-private-key-file": self._server.key,
            "client-ca-file": self._ca,
            "anonymous-auth": "false",
            "authorization-mode": "RBAC",
            # Real clusters have it: otherwise Pod Security is not what refuses a privileged pod.
            "allow-privileged": "true",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": self._server.key,
            "service-account-key-file": self._server.certificate,
            "service-cluster-ip-range": "10.96.0.0/16",
            # Its own address would be loopback, which no endpoint may have.
            "endpoint-reconciler-type": "none",
        }
        return [str(tool(API_SERVER)), *(f"--{name}={value}" for name, value in options.items())]

    def _wait_until_ready(self) -> None:
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit and all(one.poll() is None for one in self._processes):
            with contextlib.suppress(httpx.TransportError):
                if self._client.get("/readyz").status_code == httpx.codes.OK:
                    return
            time.sleep(0.2)
        logs = (self.folder / f"{name}.log" for name in ("etcd", "kube-apiserver"))
        told = "\n".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())
        raise RuntimeError(f"the API server is not ready: {told}")

    def _kubeconfig(self) -> Document:
        certificate = {"client-certificate": str(self._admin.certificate), "client-key": str(self._admin.key)}
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self._ca)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": certificate}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }

    # ---- requests -----------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Document | None = None, **query: str) -> Document:
        """One request; a PATCH is a merge.

        Raises
        ------
        RefusedError : any status but 2xx.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = self._client.request(method, path, json=body, params=query, headers={"Content-Type": kind})
        found: Document = answer.json()
        if not answer.is_success:
            raise RefusedError(answer.status_code, str(found.get("message", found)))
        return found

    def path(self, document: Document, namespace: str) -> str:
        """Where documents of its version and kind are, in a namespace or, where they have none, in the cluster."""
        prefix = self._prefix(document["apiVersion"])
        (found,) = (
            one
            for one in self.request("GET", prefix)["resources"]
            if one["kind"] == document["kind"] and "/" not in one["name"]
        )
        return (
            f"{prefix}/namespaces/{namespace}/{found['name']}"
            if found["namespaced"]
            else f"{prefix}/{found['name']}"
        )

    def create(self, document: Document, namespace: str = "", *, dry_run: bool = False) -> Document:
        """Create an object, or only ask whether it would be, after all defaults, checks and admission."""
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.request("POST", self.path(document, namespace), document, **query)

    def objects(self, namespace: str, selector: str = "") -> dict[tuple[str, str], Document]:
        """All objects of a namespace but events, by resource and name."""
        found = {}
        for version, resource, kind in self._listable:
            path = f"{self._prefix(version)}/namespaces/{namespace}/{resource}"
            for one in self.request("GET", path, labelSelector=selector)["items"]:
                # Lists leave the kind out.
                found[resource, one["metadata"]["name"]] = {"kind": kind, **one}
        return found

    @property
    def _listable(self) -> list[tuple[str, str, str]]:
        groups = self.request("GET", "/apis")["groups"]
        versions = ["v1", *(one["preferredVersion"]["groupVersion"] for one in groups)]
        return [
            (version, one["name"], one["kind"])
            for version in versions
            for one in self.request("GET", self._prefix(version))["resources"]
            if one["namespaced"] and "list" in one["verbs"] and one["kind"] != "Event"
        ]

    @staticmethod
    def _prefix(version: str) -> str:
        return f"/apis/{version}" if "/" in version else f"/api/{version}"

    @cached_property
    def version(self) -> str:
        """As `kubectl version` has it, such as v1.34.0."""
        return str(self.request("GET", "/version")["gitVersion"])

    # ---- Helm ---------------------------------------------------------------------------------------------------

    def helm_command(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """A command of Helm against this server, and its environment."""
        homes = {
            f"HELM_{name}_HOME": str(self.folder / "helm" / name.lower())
            for name in ("CACHE", "CONFIG", "DATA")
        }
        return [str(tool(HELM)), *arguments], {**os.environ, **homes, "KUBECONFIG": str(self.kubeconfig)}

    def helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Helm to its end."""
        command, environment = self.helm_command(*arguments)
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=HELM_SECONDS, env=environment
        )
