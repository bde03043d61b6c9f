"""Everything that a command imports, once, in the process that children are forked from."""

from __future__ import annotations

import optuna as optuna
import pandas as pandas
import sklearn.svm as svm
import torch

import lg2ar.cli as cli
import lg2ar.data.conversion as conversion
import lg2ar.experiment as experiment
import lg2ar.finetuning as finetuning
import lg2ar.study.ledger as ledger
import lg2ar.tuning as tuning

torch.set_num_threads(1)

__all__ = ["cli", "conversion", "experiment", "finetuning", "ledger", "svm", "tuning"]
