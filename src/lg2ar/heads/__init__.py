"""The five augmentation heads (Section 3.3, Algorithms 2-5), by name."""

from lg2ar.heads.base import EdgeWeighting, Head, node_edge_weight
from lg2ar.heads.edge_perturbation import EdgePerturbation
from lg2ar.heads.feature_masking import FeatureMasking
from lg2ar.heads.identity import Identity
from lg2ar.heads.node_dropping import NodeDropping
from lg2ar.heads.subgraph import SubGraph

HEADS: dict[str, type[Head]] = {
    "identity": Identity,
    "node-dropping": NodeDropping,
    "edge-perturbation": EdgePerturbation,
    "sub-graph": SubGraph,
    "feature-masking": FeatureMasking,
}

__all__ = [
    "HEADS",
    "EdgePerturbation",
    "EdgeWeighting",
    "FeatureMasking",
    "Head",
    "Identity",
    "NodeDropping",
    "SubGraph",
    "node_edge_weight",
]
