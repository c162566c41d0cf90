"""The page that shows what can be asked: plain HTML from the OpenAPI schema, without scripts and without a network."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code,pre{font:14px/1.4 ui-monospace,monospace;background:#f4f4f4}pre{padding:.7rem;overflow-x:auto}"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}"
    "section{border-top:1px solid #ccc}b{color:#064}"
)


def page(schema: dict[str, Any]) -> str:
    """The HTML of an OpenAPI schema."""
    info = schema["info"]
    sections = [
        _operation(path, method, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    models = [
        f"<section><h3 id='{escape(name)}'>{escape(name)}</h3><p>{escape(str(model.get('description', '')))}</p>"
        f"{_pre(model)}</section>"
        for name, model in schema.get("components", {}).get("schemas", {}).items()
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])}</h1><p>{escape(info.get('description', ''))}</p>"
        "<p>The schema for machines: <a href='openapi.json'>openapi.json</a>. Besides: <code>/healthz</code>, "
        "<code>/readyz</code>, <code>/metrics</code>.</p>"
        f"{''.join(sections)}<h2>Schemas</h2>{''.join(models)}</body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
        f"<td>{escape(str(p.get('description', '')))}</td></tr>"
        for p in operation.get("parameters", ())
    )
    answers = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(str(answer.get('description', '')))}</td>"
        f"<td>{_link(answer)}</td></tr>"
        for status, answer in operation.get("responses", {}).items()
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return (
        f"<section><h2><b>{escape(method.upper())}</b> <code>{escape(path)}</code></h2>"
        f"<p>{escape(str(operation.get('summary', '')))}</p>"
        + (f"<table>{parameters}</table>" if parameters else "")
        + (f"<p>Body:</p>{_pre(body)}" if body else "")
        + f"<p>Answers:</p><table>{answers}</table></section>"
    )


def _link(answer: dict[str, Any]) -> str:
    reference = answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    name = escape(reference.rpartition("/")[2])
    return f"<a href='#{name}'>{name}</a>" if name else ""


def _pre(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=1, ensure_ascii=False))}</pre>"
