"""The tables of settings on docs/operating.md, made of the settings: `python -m tests.docs.settings_reference`.

What a setting means is the docstring below its field.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from kinstream.streams.configuration.gate import GateSettings
from kinstream.streams.configuration.randomise import RandomiseSettings
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.configuration.vectors import SinkSettings, VectorsSettings
from kinstream.streams.settings import BuilderSettings, LearnerSettings, ServeSpaceSettings, Settings

PAGE: Final = Path(__file__).parents[2] / "docs" / "operating.md"
HEAD: Final = ("| Setting | Default | Meaning |", "|---|---|---|")
_NAMED: Final[dict[str, type[BaseModel]]] = {
    "[builders.NAME]": BuilderSettings,
    "[learners.NAME]": LearnerSettings,
    "[serve.spaces.NAME]": ServeSpaceSettings,
    "[sources.NAME]": SourceSettings,
    "[gate.SPACE]": GateSettings,
    "[randomise.SPACE]": RandomiseSettings,
    "[vectors.SPACE]": VectorsSettings,
    "[sinks.NAME]": SinkSettings,
}


def sections() -> dict[str, dict[str, str]]:
    """The rows of each section's table by setting, as the models have them."""
    models = _NAMED | {
        f"[{name}]": field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    return {heading: _rows(model) for heading, model in models.items()}


def _rows(model: type[BaseModel]) -> dict[str, str]:
    meanings = _meanings(model)
    return {
        name: f"| `{field.alias or name}` | {_default(field)} | {meanings[name]} |"
        for name, field in model.model_fields.items()
    }


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field; KeyError for a field without one."""
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(meaning))):
                    found[field.target.id] = " ".join(meaning.split())
    return found


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    value = value.get_secret_value() if isinstance(value, SecretStr) else value
    return "none" if value is None else f"`{json.dumps(value)}`"


def written(page: str) -> str:
    """The page with the table below each section's heading made anew."""
    for heading, rows in sections().items():
        table = "\n".join((*HEAD, *rows.values()))
        place = re.compile(rf"(^### {re.escape(heading)}\n(?:(?!\||#).*\n)*)(?:\|.*\n)+", re.MULTILINE)
        page, count = place.subn(lambda found, table=table: f"{found[1]}{table}\n", page)  # type: ignore[misc]
        assert count == 1, f"{heading}: {count} tables"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
