"""The names of what a ranking goes by, and how many scores there may be beside the similarities."""

from __future__ import annotations

from typing import Final

#: The cosine or inner product with the query as it is, and with the one that the learned map makes of it. Learners
#: compute both, so no score is called so; of one of several modalities: `similarity.NAME`.
SIMILARITY: Final = "similarity"
ADAPTED: Final = "adapted"
COMPUTED: Final = (SIMILARITY, ADAPTED)
#: What the service calls the score of a text.
TEXT: Final = "text"
#: Names of the scores of a space.
MOST_NAMES: Final = 32
