"""The names of what a ranking goes by, and how many scores there may be beside the similarities."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: The cosine or inner product with the query as it is, and with the one that the learned map makes of it. Learners
#: compute them, so no score is called so; of one of several modalities: `similarity.NAME`.
SIMILARITY: Final = "similarity"
ADAPTED: Final = "adapted"
#: How often an item was chosen for queries like this one, by how often it was looked at.
REMEMBERED: Final = "remembered"
COMPUTED: Final = (SIMILARITY, ADAPTED, REMEMBERED)
#: What the service calls the score of a text.
TEXT: Final = "text"
#: Names of the scores of a space.
MOST_NAMES: Final = 32


def lost_weights(weighed: Collection[str], known: Collection[str], space: str) -> tuple[str, str] | None:
    """What is wrong where a model weighs signals that a space of the service does not have, and what mends it.

    Parameters
    ----------
    weighed, known : names of the signals of the model, and of the space.

    Returns
    -------
    None if the space has them all.
    """
    lost = sorted(set(weighed) - set(known))
    if not lost:
        return None
    text = (
        f"the model weighs {', '.join(map(repr, lost))}, which the space does not have: that weight is lost"
    )
    free = sorted(set(known) - set(weighed) - set(COMPUTED))
    if not free:
        return (
            text,
            f"add a column of that name to serve.spaces.{space}.signals, or send no such score in lists",
        )
    return (
        text,
        f"the space has {', '.join(map(repr, free))}: if it is the same score, give it this name in lists",
    )
