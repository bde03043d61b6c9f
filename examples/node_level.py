"""Embed the nodes of one large graph without labels, with another policy and fewer heads.

python examples/node_level.py [steps]
"""

import sys

import lg2ar
from lg2ar.data.toy import toy_nodes
from lg2ar.probes import few_label_accuracy

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
graph = toy_nodes()
settings = {
    "hidden": 64,
    "layers": 2,
    "hops": 2,
    "batch_size": 16,
    "policy": "random",
    "heads": ["identity", "node-dropping", "edge-perturbation"],
    "patience": 0,
}

assert graph.y is not None
for name, number in {"untrained": 0, "trained": steps}.items():
    run = lg2ar.pretrain(graph, {**settings, "epochs": number})
    score = few_label_accuracy(run.embed(graph).numpy(), graph.y.numpy())
    print(f"{name}: {score.mean:.1f} ± {score.std:.1f} % ({score.protocol})")
