"""An OpenID provider for tests: a token endpoint over TLS, and the keys that sign its tokens."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.kafka.certificates import Authority

CLIENT: Final = "learner"
#: With signs that HTTP Basic must carry form-encoded.
SECRET: Final = "s3cret: of+the/token tests%"
SCOPE: Final = "kafka"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """Gives tokens to the client `CLIENT` (RFC 6749, 4.4; RFC 7519), and lists its key (RFC 7517).

    Attributes
    ----------
    audience, seconds, shift : of the next tokens: `aud`, how long they last, and by how much their clock is wrong.
    fails : (status, body) that the token endpoint answers instead; None for tokens.
    asked : number of requests for a token.
    extra : further members of an answer.
    authority : which signed the certificate of the endpoint, and which no system trusts.
    """

    def __init__(self, folder: Path, audience: str) -> None:
        self.audience = audience
        self.seconds, self.shift = 300.0, 0.0
        self.fails: tuple[int, bytes] | None = None
        self.asked = 0
        self.extra: dict[str, Any] = {}
        self._key = folder / "signing.key"
        size = ("-pkeyopt", "rsa_keygen_bits:2048")
        _openssl("genpkey", "-algorithm", "RSA", *size, "-out", str(self._key))
        modulus = (
            _openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode().strip().partition("=")[2]
        )
        self._jwk = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "e": "AQAB"}
        self._jwk["n"] = _encoded(bytes.fromhex(modulus))
        self.authority = Authority(folder / "authority", "Authority of the provider")
        own = self.authority.sign("provider", "IP:127.0.0.1")
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(own.certificate, own.key)
        #: With TLS, and without.
        self._servers: list[ThreadingHTTPServer] = []
        self._ports = [0, 0]

    @property
    def url(self) -> str:
        """Also the issuer of its tokens."""
        return f"https://127.0.0.1:{self._ports[0]}"

    @property
    def plain_url(self) -> str:
        """The same without TLS: for the keys, which a broker fetches."""
        return f"http://127.0.0.1:{self._ports[1]}"

    def start(self) -> Provider:
        """Answer; the ports stay the same."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                found = self.path == "/keys"
                self._send(200 if found else 404, json.dumps({"keys": [provider._jwk]}).encode())

            def do_POST(self) -> None:
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._send(*provider._answer(self.headers.get("Authorization", ""), form))

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if status in (301, 302, 307):
                    self.send_header("Location", f"{provider.url}/elsewhere")
                self.end_headers()
                self.wfile.write(body)

        self._servers = [_Server(("127.0.0.1", port), Handler) for port in self._ports]
        self._ports = [server.server_address[1] for server in self._servers]
        secured = self._servers[0]
        # The handshake is made by the thread of a connection, at its first read.
        secured.socket = self._tls.wrap_socket(
            secured.socket, server_side=True, do_handshake_on_connect=False
        )
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        while self._servers:
            server = self._servers.pop()
            server.shutdown()
            server.server_close()

    def _answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        self.asked += 1
        if self.fails is not None:
            return self.fails
        kind, _, pair = authorization.partition(" ")
        client, _, secret = base64.b64decode(pair).decode().partition(":")
        if (kind, urllib.parse.unquote_plus(client), urllib.parse.unquote_plus(secret)) != (
            "Basic",
            CLIENT,
            SECRET,
        ):
            wrong = {
                "error": "invalid_client",
                "error_description": "Invalid client or Invalid client credentials",
            }
            return 401, json.dumps(wrong).encode()
        if form != {"grant_type": ["client_credentials"], "scope": [SCOPE]}:
            return 400, json.dumps({"error": "invalid_scope"}).encode()
        answer = {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.seconds}
        return 200, json.dumps(answer | self.extra).encode()

    def token(self) -> str:
        """A signed token."""
        now = time.time() + self.shift
        claims = {
            "iss": self.url,
            "aud": self.audience,
            "sub": "service-account-learner",
            "scope": SCOPE,
            "iat": int(now),
            "exp": int(now + self.seconds),
        }
        head = {"alg": "RS256", "typ": "JWT", "kid": "one"}
        parts = ".".join(_encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = _openssl("dgst", "-sha256", "-sign", str(self._key), data=parts.encode())
        return f"{parts}.{_encoded(signature)}"


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Say nothing: a client that does not trust the certificate ends the handshake."""


def _openssl(*arguments: str, data: bytes | None = None) -> bytes:
    done = subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True, timeout=60)
    return done.stdout
