"""Looking for good settings: the paper's ranges, a criterion, and a study that can go on."""

from __future__ import annotations

from lg2ar.tuning.criteria import CRITERIA, LabelCriterion, LabelFree, neighbour_stability
from lg2ar.tuning.search import Tuned, tune
from lg2ar.tuning.space import SPACES, Choice, Range

__all__ = [
    "CRITERIA",
    "SPACES",
    "Choice",
    "LabelCriterion",
    "LabelFree",
    "Range",
    "Tuned",
    "neighbour_stability",
    "tune",
]
