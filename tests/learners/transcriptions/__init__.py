"""The algorithms as their papers print them, in plain numpy; nothing shared with the product.

Each class is one learner, with the paper's state as attributes under the product's names, and one step at a time.
"""

from typing import Final

from tests.learners.transcriptions.itml_online import ITMLOnline
from tests.learners.transcriptions.lego import LEGO
from tests.learners.transcriptions.mdml import MDML
from tests.learners.transcriptions.oasis import OASIS
from tests.learners.transcriptions.omdml import LOMDML, OMDML
from tests.learners.transcriptions.parts import Transcription
from tests.learners.transcriptions.pola import POLA
from tests.learners.transcriptions.rdml import RDML
from tests.learners.transcriptions.soml import SOMLDA, SOMLTG
from tests.learners.transcriptions.sors import SORS, AdaSORS

#: By the product's name of the kind.
TRANSCRIPTIONS: Final[dict[str, type[Transcription]]] = {
    "adasors": AdaSORS,
    "itml-online": ITMLOnline,
    "lego": LEGO,
    "lomdml": LOMDML,
    "mdml": MDML,
    "oasis": OASIS,
    "omdml": OMDML,
    "pola": POLA,
    "rdml": RDML,
    "soml-da": SOMLDA,
    "soml-tg": SOMLTG,
    "sors": SORS,
}
