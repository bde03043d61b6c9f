"""Embed graphs without labels, then see how far a few labels carry.

python examples/graph_level.py [epochs]
"""

import sys

import lg2ar
from lg2ar.data.toy import toy_graphs
from lg2ar.probes import few_label_accuracy

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
graphs = toy_graphs()
settings = {
    "hidden": 32,
    "layers": 2,
    "readout": "mean",
    "batch_size": 64,
    "learning_rate": 3e-3,
}

assert graphs.y is not None
for name, number in {"untrained": 0, "trained": epochs}.items():
    run = lg2ar.pretrain(graphs, {**settings, "epochs": number})
    score = few_label_accuracy(run.embed(graphs).numpy(), graphs.y.numpy())
    print(f"{name}: {score.mean:.1f} ± {score.std:.1f} % ({score.protocol})")

policy = zip(run.config.heads, run.history[-1].probabilities, strict=True)
print("policy:", ", ".join(f"{head} {p:.2f}" for head, p in policy))
