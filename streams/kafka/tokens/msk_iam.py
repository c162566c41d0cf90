"""Tokens of Amazon MSK's IAM access control, signed here by Amazon's own package with the process's AWS identity."""

from __future__ import annotations

import os
import time

from kinstream.streams.errors import LoginRefused, SettingsError
from kinstream.streams.extras import importing
from kinstream.streams.kafka.tokens.token import Away, Token

_WHO = "the login AWS_MSK_IAM"


def check() -> str:
    """The region, as AWS's variables have it.

    Raises
    ------
    SettingsError : there is none, or the package is missing.
    """
    with importing(_WHO):
        import aws_msk_iam_sasl_signer  # noqa: F401
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise SettingsError("AWS_MSK_IAM needs AWS_REGION, the region of the cluster")
    return region


def fetch() -> Token:
    """Sign a token.

    Raises
    ------
    LoginRefused : this process has no AWS credentials, or may not assume its role.
    Away : the source of credentials does not answer.
    SettingsError : as `check`.
    """
    region = check()
    with importing(_WHO):
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore import exceptions
    began = time.time()
    try:
        text, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except (exceptions.BotoCoreError, exceptions.ClientError, ValueError) as error:
        if isinstance(error, exceptions.MetadataRetrievalError) or _unanswered(error):
            raise Away(
                f"AWS_MSK_IAM in {region}: the source of AWS credentials does not answer: {error}"
            ) from None
        raise LoginRefused(
            f"AWS_MSK_IAM in {region}: no token can be signed ({error}): check the AWS credentials of this process"
        ) from None
    except AttributeError:
        # The signer does not check that botocore found any.
        raise LoginRefused(f"AWS_MSK_IAM in {region}: this process has no AWS credentials") from None
    return Token(text, began, expires_ms / 1000)


def _unanswered(error: BaseException | None) -> bool:
    """Whether a request for credentials got no answer: the error itself, or one that botocore has wrapped."""
    from botocore import exceptions

    while error is not None:
        if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
            return not isinstance(error, exceptions.SSLError)
        error = error.__context__
    return False
