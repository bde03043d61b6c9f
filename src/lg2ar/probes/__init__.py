"""Small classifiers that read embeddings."""

from __future__ import annotations

from lg2ar.probes.few_labels import (
    chosen_logistic_accuracy,
    chosen_logistic_chances,
    few_label_accuracy,
    inner_folds,
)
from lg2ar.probes.folds import C_GRID, NestedAccuracy
from lg2ar.probes.kernel import chosen_probe_accuracy, rbf_rows
from lg2ar.probes.kernel_ridge import kernel_ridge_accuracy, kernel_ridge_scores
from lg2ar.probes.linear_layer import LayerAccuracy, linear_layer_accuracy
from lg2ar.probes.linear_svm import ConvergenceError
from lg2ar.probes.nested import nested_accuracy
from lg2ar.probes.rbf_svm import rbf_accuracy
from lg2ar.probes.validated import Candidate, ValidatedAccuracy, validated_accuracy

__all__ = [
    "C_GRID",
    "Candidate",
    "ConvergenceError",
    "LayerAccuracy",
    "NestedAccuracy",
    "ValidatedAccuracy",
    "chosen_logistic_accuracy",
    "chosen_logistic_chances",
    "chosen_probe_accuracy",
    "few_label_accuracy",
    "inner_folds",
    "kernel_ridge_accuracy",
    "kernel_ridge_scores",
    "linear_layer_accuracy",
    "nested_accuracy",
    "rbf_accuracy",
    "rbf_rows",
    "validated_accuracy",
]
