"""The tables and statements of the papers for comparison with experiments, as printed.

References
----------
Li, Gao, Wang, Zhou, Huo, Shi: OPML: A one-pass closed-form solution for online metric learning. Pattern Recognition 75,
2018. Gao, Li, Chandra, Khan, Thuraisingham: Towards self-adaptive metric learning on the fly (OAHU). WWW 2019. Jain,
Kulis, Dhillon, Grauman: Online metric learning and fast similarity search (LEGO). NIPS 2008. Wu, Hoi, Zhao, Miao, Liu:
Online multi-modal distance metric learning with application to image retrieval (OMDML). IEEE Transactions on Knowledge
and Data Engineering 28(2), 2016.
"""

from __future__ import annotations

from typing import Final

from benchmarks.papers.shared.published import Printed, table, turned

#: Error of 5-NN, mean and deviation over 100 random halves. Marks are about OPML.
OPML_TABLE_2: Final = table(
    "OPML paper, Table II",
    "error",
    (
        "euclidean",
        "mahalanobis",
        "lmnn",
        "itml",
        "oasis",
        "rdml",
        "pola",
        "lego",
        "soml-tg",
        "opml",
        "copml",
    ),
    """
    lsvt | 0.234±0.056 • | 0.238±0.046 • | 0.196±0.044 | 0.175±0.040 ◦ | 0.205±0.043 • | 0.230±0.053 • | 0.157±0.036 ◦ | 0.239±0.050 • | 0.223±0.057 • | 0.189±0.048 | 0.189±0.047
    iris | 0.050±0.023 | 0.075±0.025 • | 0.037±0.017 ◦ | 0.034±0.016 ◦ | 0.274±0.050 • | 0.077±0.027 • | 0.030±0.016 ◦ | 0.050±0.021 | 0.287±0.080 • | 0.049±0.023 | 0.048±0.023
    wine | 0.044±0.020 | 0.046±0.023 | 0.030±0.016 ◦ | 0.035±0.019 ◦ | 0.019±0.014 ◦ | 0.039±0.019 | 0.028±0.018 ◦ | 0.031±0.020 ◦ | 0.169±0.093 • | 0.042±0.020 | 0.041±0.019
    glass | 0.336±0.036 | 0.349±0.037 | 0.341±0.038 | 0.358±0.042 • | 0.485±0.057 • | 0.349±0.035 | 0.395±0.042 | 0.390±0.034 • | 0.557±0.117 • | 0.339±0.032 | 0.341±0.033
    spect | 0.327±0.035 | 0.348±0.034 • | 0.336±0.037 | 0.337±0.041 | 0.364±0.050 • | 0.343±0.032 • | 0.323±0.040 • | 0.311±0.038 ◦ | 0.393±0.084 • | 0.326±0.034 | 0.327±0.035
    ionosphere | 0.172±0.019 • | 0.165±0.016 | 0.131±0.020 ◦ | 0.139±0.025 ◦ | 0.124±0.033 ◦ | 0.154±0.016 ◦ | 0.147±0.020 ◦ | 0.154±0.020 ◦ | 0.362±0.116 • | 0.161±0.019 | 0.163±0.021
    balance | 0.146±0.014 • | 0.133±0.017 • | 0.124±0.014 ◦ | 0.104±0.019 ◦ | 0.126±0.009 | 0.118±0.012 ◦ | 0.156±0.047 • | 0.118±0.011 ◦ | 0.378±0.077 • | 0.129±0.012 | 0.129±0.014
    breast | 0.034±0.008 | 0.034±0.007 | 0.033±0.008 | 0.035±0.008 | 0.043±0.021 • | 0.033±0.007 | 0.038±0.010 • | 0.035±0.008 • | 0.054±0.040 • | 0.032±0.008 | 0.032±0.007
    pima | 0.273±0.018 • | 0.271±0.018 • | 0.272±0.017 • | 0.279±0.022 • | 0.346±0.053 • | 0.269±0.019 | 0.275±0.021 • | 0.266±0.019 | 0.353±0.060 • | 0.266±0.017 | 0.265±0.018
    segment | 0.067±0.006 • | 0.101±0.008 • | 0.047±0.006 ◦ | 0.050±0.008 ◦ | 0.343±0.067 • | 0.082±0.006 • | 0.057±0.011 | 0.040±0.006 ◦ | 0.541±0.092 • | 0.059±0.006 | 0.059±0.006
    waveform | 0.187±0.006 ◦ | 0.158±0.006 ◦ | 0.182±0.060 ◦ | 0.187±0.008 ◦ | 0.357±0.039 • | 0.186±0.010 ◦ | 0.250±0.030 • | 0.233±0.007 • | 0.368±0.035 • | 0.224±0.009 | 0.225±0.010
    optdigits | 0.026±0.003 • | 0.039±0.003 • | 0.014±0.002 ◦ | 0.028±0.006 • | 0.077±0.009 • | 0.028±0.003 • | 0.023±0.003 • | 0.022±0.003 • | 0.239±0.079 • | 0.019±0.003 | 0.019±0.003
    """,  # noqa: E501
)

#: Error of 5-NN after a cold start; the number is that of blocks of each class.
OPML_TABLE_4: Final = table(
    "OPML paper, Table IV",
    "error",
    ("euclidean", "opml", "copml"),
    """
    seg-10 | 0.069±0.006 | 0.062±0.006 | 0.057±0.007
    seg-5 | 0.067±0.007 | 0.062±0.007 | 0.054±0.007
    seg-2 | 0.067±0.006 | 0.064±0.007 | 0.059±0.007
    eeg-10 | 0.185±0.004 | 0.181±0.004 | 0.161±0.023
    eeg-5 | 0.213±0.004 | 0.205±0.005 | 0.185±0.018
    eeg-2 | 0.185±0.004 | 0.178±0.007 | 0.178±0.007
    sen-10 | 0.190±0.002 | 0.093±0.036 | 0.071±0.011
    sen-5 | 0.196±0.002 | 0.097±0.032 | 0.082±0.014
    sen-2 | 0.190±0.006 | 0.067±0.020 | 0.063±0.015
    """,
)

_OAHU_DATA: Final = ("fashion", "emnist", "cifar10_gray")


def _oahu(measure: str, text: str) -> Printed:
    return turned(table("OAHU paper, Table 3", measure, _OAHU_DATA, text))


#: Error, macro F1 and share of constraints that changed the model, over 10 shuffles. Marks are about OAHU.
OAHU_TABLE_3: Final = (
    _oahu(
        "error",
        """
        lego | 0.35±0.01 • | 0.84±0.00 • | 0.88±0.00 •
        rdml | 0.22±0.01 • | 0.64±0.03 • | 0.76±0.01 •
        oasis | 0.21±0.02 • | 0.41±0.01 • | 0.79±0.02 •
        opml | 0.23±0.00 • | 0.43±0.01 • | 0.83±0.01 •
        oahu-published | 0.18±0.00 | 0.35±0.01 | 0.68±0.00
        """,
    ),
    _oahu(
        "macro_f1",
        """
        lego | 0.64±0.00 | 0.14±0.02 | 0.05±0.02
        rdml | 0.78±0.00 | 0.32±0.05 | 0.24±0.01
        oasis | 0.79±0.01 | 0.59±0.00 | 0.20±0.03
        opml | 0.78±0.00 | 0.51±0.02 | 0.16±0.00
        oahu-published | 0.81±0.00 | 0.64±0.01 | 0.31±0.00
        """,
    ),
    _oahu(
        "utilisation",
        """
        lego | 0.58±0.00 | 0.66±0.01 | 0.59±0.00
        rdml | 0.47±0.01 | 0.50±0.00 | 0.50±0.01
        oasis | 0.14±0.00 | 0.24±0.00 | 0.47±0.00
        opml | 0.30±0.01 | 0.45±0.00 | 0.48±0.04
        oahu-published | 1.00±0.00 | 1.00±0.00 | 1.00±0.00
        """,
    ),
)

#: Mean average precision on the small sets of images. B is the best modality, C all side by side, U their plain sum.
OMDML_TABLE_2: Final = turned(
    table(
        "OMDML paper, Table 2",
        "map",
        ("corel", "caltech101", "indoor", "imageclef"),
        """
        euclidean-b | 0.4431 | 0.4299 | 0.1726 | 0.4325
        rca-b | 0.5097 | 0.4984 | 0.1915 | 0.4492
        lmnn-b | 0.4876 | 0.5462 | 0.1852 | 0.5231
        oasis-b | 0.4445 | 0.5072 | 0.1884 | 0.4424
        euclidean-c | 0.5220 | 0.4306 | 0.1842 | 0.4431
        rca-c | 0.6437 | 0.6156 | 0.2078 | 0.5927
        lmnn-c | 0.5816 | 0.5894 | 0.2027 | 0.5821
        oasis-c | 0.5657 | 0.5441 | 0.2017 | 0.5618
        euclidean-u | 0.5220 | 0.4306 | 0.1842 | 0.4431
        rca-u | 0.5625 | 0.4860 | 0.1894 | 0.4909
        lmnn-u | 0.6026 | 0.4282 | 0.2007 | 0.4647
        oasis-u | 0.5679 | 0.5419 | 0.1989 | 0.5338
        omdml | 0.6620 | 0.6543 | 0.2113 | 0.6824
        lomdml | 0.6975 | 0.6646 | 0.2250 | 0.7080
        """,
    )
)

#: LEGO paper, section 5: its statements about five UCI sets and 45 pairs of digits. It prints no table.
LEGO_SPEED_OVER_POLA: Final = 16.6
LEGO_AT_LEAST_POLA: Final = (33, 45)
