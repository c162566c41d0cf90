"""Settings to begin with, for each sort of data."""

from __future__ import annotations

import json
from typing import Final

_SHARED: Final = """\
# Settings of Kinstream. `kinstream check` checks them; docs/operating.md lists all that can be set.

[kafka]
bootstrap_servers = {brokers}
# security_protocol = "SASL_SSL"        # logins: docs/security.md

[topics]
partitions = 6                          # one space is on one partition, so this limits how many workers share the work
replication = 3                         # with fewer brokers: their number

[checkpoints]
url = {checkpoints}                     # a folder or an fsspec URL that every worker reaches

[worker]
http_port = 9108                        # health and metrics; 0 takes any free port

"""
_MIXTURE: Final = """\
# Takes features as they are, and follows the scaling and the learner with the better neighbours: docs/mixture.md.
[learners.mixture]
kind = "mixture"
from = ["{builder}"]
# held_out = 0.02                       # share of the events that are judged and never learned
"""
_CLICKS: Final = """\
# Whole result lists. Send items first: kinstream produce items FILE --space NAME; then kinstream produce clicks
[builders.clicks]
kind = "clicks"
rules = ["click-list"]                  # other rules take the order of your lists for what users want: docs/building.md

# Maps queries, weighs the scores of your lists, and leaves the items of your store as they are: docs/adapter.md.
[learners.ranking]
kind = "ranking"
from = ["clicks"]
remember = 10000                        # queries of which it remembers what was chosen, those that came last
# start = {similarity = 0.5, text = 0.5}  # shares of the ranking that people have; left out: similarity alone
"""
#: The part of each sort of data.
DATA: Final = {
    "labels": """\
# Triplets from rows with a class. Send rows: kinstream produce labelled FILE --space NAME
[builders.one-pass]
kind = "one-pass"

"""
    + _MIXTURE.replace("{builder}", "one-pass"),
    "clicks": _CLICKS,
    "relations": """\
# Pairs and triplets of all that follows from relations. Send items, then: kinstream produce relations FILE --space NAME
[builders.closure]
kind = "closure"

"""
    + _MIXTURE.replace("{builder}", "closure"),
    "embeddings": _CLICKS
    + """
# `kinstream serve` maps queries and asks your store: docs/serving.md.
# [serve.spaces.NAME]
# learner = "ranking"
# backend = "pgvector"
# connection_file = "database.url"
# collection = "docs"
""",
}


def first_settings(data: str, brokers: str, checkpoints: str) -> str:
    """The text of a settings file.

    Parameters
    ----------
    data : a key of `DATA`.
    brokers, checkpoints : addresses, and folder or URL.
    """
    head = _SHARED.replace("{brokers}", _quoted(brokers)).replace("{checkpoints}", _quoted(checkpoints))
    return head + DATA[data]


def _quoted(text: str) -> str:
    """A basic string of TOML. JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)
