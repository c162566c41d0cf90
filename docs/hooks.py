"""What the site needs beside the pages: the change log, which lies above them, is a page of it too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

CHANGES = Path(__file__).parents[1] / "CHANGELOG.md"


def on_files(files: Files, config: Any) -> Files:
    """Add CHANGELOG.md as changelog.md."""
    files.append(File.generated(config, "changelog.md", content=CHANGES.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to the change log lead to that page, and its links to pages lose the folder."""
    if page.file.src_uri == "changelog.md":
        return re.sub(r"\]\(docs/", "](", markdown)
    return markdown.replace("](../CHANGELOG.md", "](changelog.md")
