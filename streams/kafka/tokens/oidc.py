"""The client credentials grant of OAuth 2.0 (RFC 6749, section 4.4), as OpenID Connect providers offer it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from kinstream.streams.errors import LoginRefused, SettingsError
from kinstream.streams.kafka.tokens.token import Away, Token, claims_of
from kinstream.streams.redirects import NoRedirect
from kinstream.streams.secrets import hide
from kinstream.streams.settings import KafkaSettings

#: Seconds for a connection to the endpoint, and for each part of its answer.
ANSWER_SECONDS: Final = 10.0
_MAX_ANSWER: Final = 65_536
#: Statuses below 500 after which the same request may succeed.
_LATER: Final = frozenset({408, 425, 429})
_ADVICE: Final = {
    "invalid_client": "check KAFKA_SASL_OAUTHBEARER_CLIENT_ID, and KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET or its file",
    "unauthorized_client": "the provider does not allow this client the grant client_credentials",
    "unsupported_grant_type": "the provider does not offer the grant client_credentials",
    "invalid_scope": "check KAFKA_SASL_OAUTHBEARER_SCOPE",
}


def fetch(kafka: KafkaSettings) -> Token:
    """Ask the token endpoint for a token.

    Raises
    ------
    LoginRefused : it refuses this client, is not trusted, or answers with something else than a token.
    Away : it does not answer, or not for now.
    SettingsError : KAFKA_SASL_OAUTHBEARER_CA_FILE cannot be used.
    """
    url = kafka.sasl_oauthbearer_token_endpoint_url
    form = {"grant_type": "client_credentials"}
    if kafka.sasl_oauthbearer_scope:
        form["scope"] = kafka.sasl_oauthbearer_scope
    request = urllib.request.Request(
        url,
        urllib.parse.urlencode(form).encode(),
        {
            "Authorization": f"Basic {_basic(kafka)}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=trusted(kafka)))
    began = time.time()
    try:
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            body = answer.read(_MAX_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(url, error.code, error.read(_MAX_ANSWER)) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise LoginRefused(
                f"{url}: the certificate of the token endpoint is not trusted ({error.reason.verify_message}): "
                "check KAFKA_SASL_OAUTHBEARER_CA_FILE and the URL"
            ) from None
        raise Away(f"{url}: the token endpoint does not answer: {_reason(error.reason)}") from None
    except (OSError, http.client.HTTPException) as error:
        raise Away(f"{url}: the token endpoint does not answer: {_reason(error)}") from None
    return _token(url, body, began)


def trusted(kafka: KafkaSettings) -> ssl.SSLContext:
    """The authorities that vouch for the token endpoint.

    Raises
    ------
    SettingsError : KAFKA_SASL_OAUTHBEARER_CA_FILE cannot be used.
    """
    file = kafka.sasl_oauthbearer_ca_file
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ssl.SSLError) as error:
        why = "not a usable PEM file" if isinstance(error, ssl.SSLError) else error.strerror
        raise SettingsError(f"KAFKA_SASL_OAUTHBEARER_CA_FILE {file}: {why}") from None


def _basic(kafka: KafkaSettings) -> str:
    """Client id and secret for HTTP Basic, form-encoded first (RFC 6749, section 2.3.1)."""
    client, secret = kafka.sasl_oauthbearer_client_id, kafka.sasl_oauthbearer_client_secret.get_secret_value()
    pair = f"{urllib.parse.quote_plus(client)}:{urllib.parse.quote_plus(secret)}"
    return base64.b64encode(pair.encode()).decode()


def _refusal(url: str, status: int, body: bytes) -> LoginRefused | Away:
    """The error for an answer other than 200."""
    found = _object(body)
    told = [str(found[name]) for name in ("error", "error_description") if found.get(name)]
    text = hide(f"{url}: the token endpoint answers {status}" + (f" ({': '.join(told)})" if told else ""))
    if status >= 500 or status in _LATER:
        return Away(text)
    advice = _ADVICE.get(str(found.get("error")))
    if advice is None:
        advice = (
            "check KAFKA_SASL_OAUTHBEARER_CLIENT_ID and its secret"
            if status in (401, 403)
            else "check KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL and KAFKA_SASL_OAUTHBEARER_SCOPE"
        )
    return LoginRefused(f"{text}: {advice}")


def _token(url: str, body: bytes, began: float) -> Token:
    found = _object(body)
    text = found.get("access_token")
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or not text.strip():
        raise LoginRefused(
            f"{url}: the answer holds no access_token: check KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL"
        )
    lasts, until = found.get("expires_in"), claims_of(text).get("exp")
    if isinstance(lasts, int | float) and lasts > 0:
        return Token(text, began, began + lasts)
    if isinstance(until, int | float):
        return Token(text, began, float(until))
    raise LoginRefused(f"{url}: the answer does not say when the token expires (expires_in)")


def _object(body: bytes) -> dict[str, Any]:
    """A JSON object; empty for any other text."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(error: object) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
