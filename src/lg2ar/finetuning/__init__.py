"""Fine-tuning: a base encoder and a new head, trained with some labels.

Two uses share the network and the pass over the labelled rows. The study trains on folds for a
fixed number of epochs and chooses an epoch afterwards, as GraphCL does (``folds``, ``selection``).
A person trains once, stops early on a validation part, and keeps the network (``from_run``,
``saved``).
"""

from __future__ import annotations

from lg2ar.finetuning.folds import fine_tune, fine_tuned_accuracy
from lg2ar.finetuning.from_run import finetune
from lg2ar.finetuning.saved import FineTuned, Predictions, load_finetuned
from lg2ar.finetuning.selection import SELECTIONS, Curve, FoldAccuracy, Selection, select
from lg2ar.finetuning.splits import held_out_split
from lg2ar.splits import Split, semi_splits, supervised_splits

__all__ = [
    "SELECTIONS",
    "Curve",
    "FineTuned",
    "FoldAccuracy",
    "Predictions",
    "Selection",
    "Split",
    "fine_tune",
    "fine_tuned_accuracy",
    "finetune",
    "held_out_split",
    "load_finetuned",
    "select",
    "semi_splits",
    "supervised_splits",
]
