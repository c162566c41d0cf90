"""Learners in the published unit: what papers and transcriptions say holds for these."""

from __future__ import annotations

from typing import Any

from kinstream.learners import registry
from kinstream.learners.base.learner import Learner
from kinstream.learners.base.scaler import PUBLISHED
from kinstream.learners.one_modality import (
    adasors,
    itml_online,
    kernel_lego,
    lego,
    mdml,
    oasis,
    opml,
    pola,
    rdml,
    soml_da,
    soml_tg,
    sors,
)
from kinstream.learners.several_modalities import fusion, lomdml, omdl_lr, omdml, omks


def create(kind: str, **settings: Any) -> Learner:
    """A new learner, in the published unit if its kind has a choice."""
    if registry.has(kind, "unit"):
        settings = {"unit": PUBLISHED} | settings
    return registry.create(kind, **settings)


class _Published:
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **({"unit": PUBLISHED} | settings))


class AdaSORS(_Published, adasors.AdaSORS):
    pass


class ITMLOnline(_Published, itml_online.ITMLOnline):
    pass


class KernelLEGO(_Published, kernel_lego.KernelLEGO):
    pass


class LEGO(_Published, lego.LEGO):
    pass


class MDML(_Published, mdml.MDML):
    pass


class OASIS(_Published, oasis.OASIS):
    pass


class COPML(_Published, opml.COPML):
    pass


class OPML(_Published, opml.OPML):
    pass


class POLA(_Published, pola.POLA):
    pass


class RDML(_Published, rdml.RDML):
    pass


class SOMLDA(_Published, soml_da.SOMLDA):
    pass


class SOMLTG(_Published, soml_tg.SOMLTG):
    pass


class SORS(_Published, sors.SORS):
    pass


class Fusion(_Published, fusion.Fusion):
    pass


class OMDML(_Published, omdml.OMDML):
    pass


class LOMDML(_Published, lomdml.LOMDML):
    pass


class OMKS(_Published, omks.OMKS):
    pass


class OMDLLR(_Published, omdl_lr.OMDLLR):
    pass
