"""Every formula and algorithm of the paper once more, as plain loops over single numbers.

A number is a float64 tensor without dimensions, so that gradients can be compared as well as
values. The end of the file makes the small graphs that the loops and the fast code both read.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from lg2ar.encoders import GCN, GIN, Encoder
from lg2ar.graph import GraphBatch
from lg2ar.layers import MLP, BatchNorm, WeightedGCNConv, WeightedGINEConv
from lg2ar.policy import DeepSetPolicy, GRUPolicy

Row = list[Tensor]
Table = list[Row]
Layers = list[tuple[Table, Row]]
Edge = tuple[int, int]
Score = Callable[[Row, Row, Tensor, Tensor], Tensor]
Module = TypeVar("Module", bound=nn.Module)

ZERO = torch.zeros((), dtype=torch.float64)
ONE = torch.ones((), dtype=torch.float64)


# ------------------------------------------------------------------ numbers, rows and tables


def row(vector: Tensor) -> Row:
    return list(vector.unbind())


def table(matrix: Tensor) -> Table:
    return [row(line) for line in matrix.unbind()]


def vector(values: Row) -> Tensor:
    return torch.stack(values) if values else torch.zeros(0, dtype=torch.float64)


def matrix(rows: Table) -> Tensor:
    return torch.stack([vector(values) for values in rows])


def total(values: Iterable[Tensor]) -> Tensor:
    result = ZERO
    for value in values:
        result = result + value
    return result


def mean(values: Row) -> Tensor:
    return total(values) / len(values)


def dot(left: Row, right: Row) -> Tensor:
    return total(a * b for a, b in zip(left, right, strict=True))


def norm(values: Row) -> Tensor:
    return dot(values, values).sqrt()


def add(left: Row, right: Row) -> Row:
    return [a + b for a, b in zip(left, right, strict=True)]


def scaled(values: Row, factor: Tensor) -> Row:
    return [value * factor for value in values]


def relu(value: Tensor) -> Tensor:
    return value if value > 0 else value * 0


def sigmoid(value: Tensor) -> Tensor:
    return 1 / (1 + (-value).exp())


def softmax(values: Row) -> Row:
    powers = [value.exp() for value in values]
    return [power / total(powers) for power in powers]


# ------------------------------------------------------------------ bounds (Section 3.5)


def jensen_shannon(
    scores: Table, positive: list[list[bool]], weight: Row, positive_share: float = 0.5
) -> Tensor:
    joint, product = ZERO, ZERO
    joint_weight, product_weight = ZERO, ZERO
    for r, line in enumerate(scores):
        for c, score in enumerate(line):
            if positive[r][c]:
                joint = joint + weight[r] * -(1 + (-score).exp()).log()
                joint_weight = joint_weight + weight[r]
            else:
                product = product + weight[r] * (1 + score.exp()).log()
                product_weight = product_weight + weight[r]
    agree = joint / joint_weight if joint_weight > 0 else ZERO
    disagree = product / product_weight if product_weight > 0 else ZERO
    return 2 * positive_share * agree - 2 * (1 - positive_share) * disagree


def info_nce(scores: Table, positive: list[list[bool]], weight: Row) -> Tensor:
    result = ZERO
    for r, line in enumerate(scores):
        average = mean([score.exp() for score in line])
        own = line[positive[r].index(True)]
        result = result + weight[r] * (own - average.log())
    return result / total(weight)


def nt_xent(
    scores: Table, positive: list[list[bool]], weight: Row, temperature: float = 0.5
) -> Tensor:
    result = ZERO
    for r, line in enumerate(scores):
        powers = total((score / temperature).exp() for score in line)
        own = line[positive[r].index(True)]
        result = result + weight[r] * ((own / temperature).exp() / powers).log()
    return result / total(weight)


def donsker_varadhan(scores: Table, positive: list[list[bool]], weight: Row) -> Tensor:
    joint, powers = ZERO, ZERO
    joint_weight, power_weight = ZERO, ZERO
    for r, line in enumerate(scores):
        for c, score in enumerate(line):
            if positive[r][c]:
                joint = joint + weight[r] * score
                joint_weight = joint_weight + weight[r]
            else:
                powers = powers + weight[r] * score.exp()
                power_weight = power_weight + weight[r]
    agree = joint / joint_weight if joint_weight > 0 else ZERO
    disagree = (powers / power_weight).log() if power_weight > 0 else ZERO
    return agree - disagree


BOUNDS: dict[str, Callable[..., Tensor]] = {
    "jsd": jensen_shannon,
    "nce": info_nce,
    "nt-xent": nt_xent,
    "dv": donsker_varadhan,
}


# ------------------------------------------------------------------ discriminators


def dot_score(h: Row, g: Row, p: Tensor, q: Tensor) -> Tensor:
    return dot(scaled(h, p), scaled(g, q))


def cosine_score(h: Row, g: Row, p: Tensor, q: Tensor) -> Tensor:
    return p * q * dot(h, g) / (norm(h) * norm(g))


def bilinear_score(weight: Table) -> Score:
    def score(h: Row, g: Row, p: Tensor, q: Tensor) -> Tensor:
        return total(
            p * h[a] * weight[a][b] * q * g[b] for a in range(len(h)) for b in range(len(g))
        )

    return score


def mlp_score(layers: Layers) -> Score:
    def score(h: Row, g: Row, p: Tensor, q: Tensor) -> Tensor:
        return mlp(layers, scaled(h, p) + scaled(g, q))[0]

    return score


def score_of(name: str, discriminator: nn.Module) -> Score:
    """The transcription of a discriminator, reading the parameters of the fast one."""
    if name == "bilinear":
        weight = discriminator.get_parameter("weight")
        return bilinear_score(table(weight))
    if name == "mlp":
        perceptron = discriminator.get_submodule("mlp")
        assert isinstance(perceptron, MLP)
        return mlp_score(layers_of(perceptron))
    return {"dot": dot_score, "cosine": cosine_score}[name]


# ------------------------------------------------------------------ layers


def linear(weight: Table, bias: Row, x: Row) -> Row:
    return [dot(line, x) + b for line, b in zip(weight, bias, strict=True)]


def layers_of(module: MLP) -> Layers:
    linears = [module.first, *(part for part in module.rest if isinstance(part, nn.Linear))]
    return [(table(part.weight), row(part.bias)) for part in linears]


def mlp(layers: Layers, x: Row) -> Row:
    for place, (weight, bias) in enumerate(layers):
        x = linear(weight, bias, x if place == 0 else [relu(value) for value in x])
    return x


def adjacency(graph: GraphBatch) -> Table:
    """The dense matrix with the weight of ``j -> i`` in row i, column j; repetitions add up."""
    size = graph.num_nodes
    A = [[ZERO] * size for _ in range(size)]
    for (j, i), w in zip(edges(graph), weights(graph), strict=True):
        A[i][j] = A[i][j] + w
    return A


def matrix_product(A: Table, x: Table) -> Table:
    return [
        [total(a * x[j][c] for j, a in enumerate(line) if a is not ZERO) for c in range(len(x[0]))]
        for line in A
    ]


def gin_layer(layers: Layers, x: Table, graph: GraphBatch) -> Table:
    messages = matrix_product(adjacency(graph), x)
    return [mlp(layers, add(own, sent)) for own, sent in zip(x, messages, strict=True)]


def gine_layer(
    layers: Layers, edge_weight: Table, edge_bias: Row, x: Table, graph: GraphBatch
) -> Table:
    """Edge by edge: ``w relu(h_j + W_e e + b_e)`` is added to what node i hears."""
    heard = [list(line) for line in x]
    listed = zip(edges(graph), weights(graph), attributes(graph), strict=True)
    for (j, i), w, e in listed:
        message = [relu(value) for value in add(x[j], linear(edge_weight, edge_bias, e))]
        heard[i] = add(heard[i], scaled(message, w))
    return [mlp(layers, line) for line in heard]


def gcn_layer_with_attributes(
    weight: Table, edge_weight: Table, bias: Row, x: Table, graph: GraphBatch
) -> Table:
    """Edge by edge: ``w (W h_j + W_e e) / sqrt(d_j d_i)``, and the self-loop ``W h_i / d_i``."""
    nothing = [ZERO] * len(bias)
    degree = [ONE] * len(x)
    for (_, i), w in zip(edges(graph), weights(graph), strict=True):
        degree[i] = degree[i] + w
    projected = [linear(weight, nothing, features) for features in x]
    heard = [scaled(line, 1 / d) for line, d in zip(projected, degree, strict=True)]
    listed = zip(edges(graph), weights(graph), attributes(graph), strict=True)
    for (j, i), w, e in listed:
        message = add(projected[j], linear(edge_weight, nothing, e))
        heard[i] = add(heard[i], scaled(message, w / (degree[j] * degree[i]).sqrt()))
    return [add(line, bias) for line in heard]


def gcn_layer(weight: Table, bias: Row, x: Table, graph: GraphBatch) -> Table:
    A = adjacency(graph)
    for i in range(len(A)):
        A[i][i] = A[i][i] + 1
    degree = [total(line) for line in A]
    normed = [
        [ZERO if a is ZERO else a / (degree[i] * degree[j]).sqrt() for j, a in enumerate(line)]
        for i, line in enumerate(A)
    ]
    projected = [linear(weight, [ZERO] * len(bias), features) for features in x]
    return [add(line, bias) for line in matrix_product(normed, projected)]


def batch_norm(norm: BatchNorm, rows: Table) -> Table:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    result: Table = [[] for _ in rows]
    for c in range(len(rows[0])):
        column = [line[c] for line in rows]
        if norm.training and len(column) > 1:
            middle = mean(column)
            variance = mean([(value - middle) ** 2 for value in column])
        else:
            middle, variance = norm.running_mean[c], norm.running_var[c]
        for line, value in zip(result, column, strict=True):
            unit = (value - middle) / (variance + norm.eps).sqrt()
            line.append(unit * norm.weight[c] + norm.bias[c])
    return result


# ------------------------------------------------------------------ encoders (3.1, 3.4)


def gin_network(network: GIN, graph: GraphBatch) -> Table:
    h = table(graph.x)
    if isinstance(network.embedding, nn.Linear):
        weight, bias = table(network.embedding.weight), row(network.embedding.bias)
        h = [linear(weight, bias, line) for line in h]
    outputs: Table = [[] for _ in h]
    for conv, norm in zip(network.convs, network.norms, strict=True):
        perceptron = conv.get_submodule("mlp")
        assert isinstance(perceptron, MLP)
        if isinstance(conv, WeightedGINEConv):
            edge_weight, edge_bias = table(conv.edges.weight), row(conv.edges.bias)
            h = gine_layer(layers_of(perceptron), edge_weight, edge_bias, h, graph)
        else:
            h = gin_layer(layers_of(perceptron), h, graph)
        if network.norm_first and isinstance(norm, BatchNorm):
            h = batch_norm(norm, h)
        h = [[relu(value) for value in line] for line in h]
        if not network.norm_first and isinstance(norm, BatchNorm):
            h = batch_norm(norm, h)
        for line, output in zip(h, outputs, strict=True):
            output.extend(line)
    return outputs


def gcn_network(network: GCN, graph: GraphBatch) -> Table:
    h, outputs = table(graph.x), []
    if network.own is not None:
        weight, bias = table(network.own.linear.weight), row(network.own.linear.bias)
        own = [linear(weight, bias, line) for line in h]
        outputs.append(prelu_of(network.own.activation, own))
    for conv, norm, prelu in zip(network.convs, network.norms, network.activations, strict=True):
        if not isinstance(conv, WeightedGCNConv):  # smoothing: a layer that leaves rows as they are
            same, none = torch.eye(len(h[0]), dtype=torch.float64), torch.zeros(len(h[0]))
            h = gcn_layer(table(same), row(none), h, graph)
            outputs.append(h)
            continue
        weight, bias = table(conv.linear.weight), row(conv.bias)
        if conv.edges is None:
            h = gcn_layer(weight, bias, h, graph)
        else:
            h = gcn_layer_with_attributes(weight, table(conv.edges.weight), bias, h, graph)
        if isinstance(norm, BatchNorm):
            h = batch_norm(norm, h)
        h = prelu_of(prelu, h)
        outputs.append(h)
    if not network.side_by_side:
        return h
    return [[value for rows in outputs for value in rows[v]] for v in range(graph.num_nodes)]


def prelu_of(module: nn.Module, rows: Table) -> Table:
    slope = module.get_parameter("weight")[0]
    return [[value if value > 0 else slope * value for value in line] for line in rows]


def read_out(rows: Table, graph: GraphBatch, how: str) -> Table:
    result = []
    for nodes in members(graph):
        columns = [[rows[v][c] for v in nodes] for c in range(len(rows[0]))]
        line = [mean(column) if how == "mean" else total(column) for column in columns]
        if how == "log-sum":
            line = [(1 + x).log() if x >= 0 else -(1 - x).log() for x in line]
        result.append(line)
    return result


def encode(encoder: Encoder, graph: GraphBatch) -> tuple[Table, Table]:
    """Node and graph rows before the projection heads."""
    network = encoder.network
    rows = gin_network(network, graph) if isinstance(network, GIN) else gcn_network(network, graph)
    return rows, read_out(rows, graph, encoder.readout)


def encode_and_project(encoder: Encoder, graph: GraphBatch) -> tuple[Table, Table]:
    nodes, graphs = encode(encoder, graph)
    if isinstance(encoder.node_projection, MLP):
        layers = layers_of(encoder.node_projection)
        nodes = [mlp(layers, line) for line in nodes]
    if isinstance(encoder.graph_projection, MLP):
        layers = layers_of(encoder.graph_projection)
        graphs = [mlp(layers, line) for line in graphs]
    return nodes, graphs


# ------------------------------------------------------------------ policies (3.2)


def gru_last_state(gru: nn.GRU, sequence: Table) -> Row:
    size = gru.hidden_size
    W, U = table(gru.get_parameter("weight_ih_l0")), table(gru.get_parameter("weight_hh_l0"))
    b, c = row(gru.get_parameter("bias_ih_l0")), row(gru.get_parameter("bias_hh_l0"))
    state = [ZERO] * size
    for x in sequence:
        new = []
        for k in range(size):
            reset, update, candidate = k, size + k, 2 * size + k
            r = sigmoid(dot(W[reset], x) + b[reset] + dot(U[reset], state) + c[reset])
            z = sigmoid(dot(W[update], x) + b[update] + dot(U[update], state) + c[update])
            remembered = dot(U[candidate], state) + c[candidate]
            n = (dot(W[candidate], x) + b[candidate] + r * remembered).tanh()
            new.append((1 - z) * n + z * state[k])
        state = new
    return state


def gru_logits(policy: GRUPolicy, graphs: Table) -> Row:
    ordered = sorted(graphs, key=lambda values: norm(values).item())
    last = gru_last_state(policy.gru, ordered)
    return linear(table(policy.output.weight), row(policy.output.bias), last)


def deepset_logits(policy: DeepSetPolicy, graphs: Table) -> Row:
    element = layers_of(policy.element)
    projected = [mlp(element, values) for values in graphs]
    pooled = [mean([line[c] for line in projected]) for c in range(len(projected[0]))]
    return mlp(layers_of(policy.batch), pooled)


def policy_logits(policy: nn.Module, graphs: Table) -> Row:
    if isinstance(policy, GRUPolicy):
        return gru_logits(policy, graphs)
    if isinstance(policy, DeepSetPolicy):
        return deepset_logits(policy, graphs)
    assert isinstance(policy.num_heads, int)
    return [ZERO] * policy.num_heads


def policy_probabilities(policy: nn.Module, graphs: Table, temperature: float) -> Row:
    return softmax([logit / temperature for logit in policy_logits(policy, graphs)])


# ------------------------------------------------------------------ draws, given the noise


def gumbel(u: float) -> float:
    return -math.log(-math.log(u))


def gumbel_top_k(
    logits: Sequence[float], noise: Sequence[float], graph: GraphBatch, ratio: float
) -> set[int]:
    kept: set[int] = set()
    for nodes in members(graph):
        ranked = sorted(nodes, key=lambda v: logits[v] + noise[v], reverse=True)
        kept.update(ranked[: math.ceil(ratio * len(nodes))])
    return kept


def relaxed_bernoulli(logit: Tensor, first: float, second: float, temperature: float) -> Tensor:
    return sigmoid((logit + first - second) / temperature)


def segment_softmax(values: Row, graph: GraphBatch) -> Row:
    result = [ZERO] * len(values)
    for nodes in members(graph):
        for v, share in zip(nodes, softmax([values[v] for v in nodes]), strict=True):
            result[v] = share
    return result


# ------------------------------------------------------------------ what is cut from a graph


def breadth_first(graph: GraphBatch, start: int, hops: int) -> set[int]:
    """Nodes at most ``hops`` edges from the start, whatever the edges' direction."""
    neighbours: dict[int, set[int]] = {v: set() for v in range(graph.num_nodes)}
    for i, j in edges(graph):
        neighbours[i].add(j)
        neighbours[j].add(i)
    distance = {start: 0}
    queue = deque([start])
    while queue:
        v = queue.popleft()
        if distance[v] == hops:
            continue
        for u in neighbours[v] - distance.keys():
            distance[u] = distance[v] + 1
            queue.append(u)
    return set(distance)


def induced_edges(graph: GraphBatch, kept: set[int]) -> list[int]:
    """Places of the edges between two kept nodes."""
    return [e for e, (i, j) in enumerate(edges(graph)) if i in kept and j in kept]


def cut(graph: GraphBatch, kept: set[int], w: Row) -> GraphBatch:
    """The induced sub-graph, whose edge weights are those of ``w`` that stay."""
    nodes = sorted(kept)
    label = {v: place for place, v in enumerate(nodes)}
    stay = induced_edges(graph, kept)
    listed = [(label[i], label[j]) for i, j in (edges(graph)[e] for e in stay)]
    return GraphBatch(
        x=matrix([row(graph.x[v]) for v in nodes]),
        edge_index=edge_tensor(listed),
        batch=torch.tensor([int(graph.batch[v]) for v in nodes]),
        num_graphs=graph.num_graphs,
        edge_weight=vector([w[e] for e in stay]),
        origin=torch.tensor(nodes),
        edge_attr=None if graph.edge_attr is None else rows_of(graph.edge_attr, stay),
    )


def non_edges(graph: GraphBatch) -> list[set[Edge]]:
    """For each graph the pairs u < v of its nodes that no edge joins, by brute force."""
    joined = {(min(e), max(e)) for e in edges(graph)}
    return [
        {(u, v) for u in nodes for v in nodes if u < v and (u, v) not in joined}
        for nodes in members(graph)
    ]


# ------------------------------------------------------------------ heads (Algorithms 2-5)


def node_logits(layers: Layers, nodes: Table, graphs: Table, graph: GraphBatch) -> Row:
    """MLP of ``[h_v || h_g]``."""
    home = graph.batch.tolist()
    return [mlp(layers, nodes[v] + graphs[home[v]])[0] for v in range(graph.num_nodes)]


def edge_logits(
    layers: Layers,
    nodes: Table,
    candidates: list[Edge],
    exists: Sequence[bool],
    e: Table | None = None,
) -> Row:
    """MLP of ``[h_i + h_j || e_ij || 1_E]``."""
    indicator = [ONE if there else ZERO for there in exists]
    e = [[]] * len(candidates) if e is None else e
    return [
        mlp(layers, [*add(nodes[i], nodes[j]), *own, one])[0]
        for (i, j), own, one in zip(candidates, e, indicator, strict=True)
    ]


def pair_attributes(graph: GraphBatch) -> Table:
    """For each edge the mean attributes of all edges between its two nodes, either way."""
    found: dict[Edge, Table] = {}
    for (i, j), e in zip(edges(graph), attributes(graph), strict=True):
        found.setdefault((min(i, j), max(i, j)), []).append(e)
    means = {
        pair: [mean([line[c] for line in lines]) for c in range(len(lines[0]))]
        for pair, lines in found.items()
    }
    return [means[min(i, j), max(i, j)] for i, j in edges(graph)]


def node_edge_weights(graph: GraphBatch, p: Row, weighting: str) -> Row:
    """``p_i + p_j``, relative to what uniform probabilities would give, or one in value."""
    sizes = [len(nodes) for nodes in members(graph)]
    home = graph.batch.tolist()
    result = []
    for (i, j), own in zip(edges(graph), weights(graph), strict=True):
        w = p[i] + p[j]
        if weighting != "printed":
            w = w * sizes[home[i]] / 2
        if weighting == "straight-through":
            w = 1 + w - w.detach()
        result.append(w * own)
    return result


def node_dropping(
    graph: GraphBatch, logits: Row, noise: Sequence[float], ratio: float, weighting: str
) -> GraphBatch:
    p = segment_softmax(logits, graph)
    kept = gumbel_top_k([logit.item() for logit in logits], noise, graph, ratio)
    return cut(graph, kept, node_edge_weights(graph, p, weighting))


def sub_graph(
    graph: GraphBatch, logits: Row, noise: Sequence[float], hops: int, weighting: str
) -> GraphBatch:
    p = segment_softmax(logits, graph)
    kept: set[int] = set()
    for nodes in members(graph):
        centre = max(nodes, key=lambda v: logits[v].item() + noise[v])
        kept |= breadth_first(graph, centre, hops)
    return cut(graph, kept, node_edge_weights(graph, p, weighting))


def edge_perturbation(
    graph: GraphBatch,
    candidates: list[Edge],
    allowed: Sequence[bool],
    logits: Row,
    noise: Sequence[tuple[float, float]],
    weighting: str,
) -> GraphBatch:
    """Keep the candidates whose coin falls on one; the second half of them are non-edges."""
    own = weights(graph)
    listed, w, stay = [], [], []
    for e, candidate in enumerate(candidates):
        coin = relaxed_bernoulli(logits[e].detach(), *noise[e], temperature=1.0)
        if allowed[e] and coin > 0.5:
            p = sigmoid(logits[e])
            if weighting == "straight-through":
                p = 1 + p - p.detach()
            listed.append(candidate)
            w.append(p * own[e % len(own)])
            stay.append(e % len(own))
    return graph.replace(
        edge_index=edge_tensor(listed),
        edge_weight=vector(w),
        edge_attr=None if graph.edge_attr is None else rows_of(graph.edge_attr, stay),
    )


def feature_masking(
    graph: GraphBatch,
    projected: Table,
    logits: Table,
    noise: Sequence[Sequence[tuple[float, float]]],
    temperature: float,
) -> GraphBatch:
    rows: Table = []
    for v, features in enumerate(projected):
        line = []
        for c, value in enumerate(features):
            soft = relaxed_bernoulli(logits[v][c], *noise[v][c], temperature=temperature)
            hard = 1.0 if soft > 0.5 else 0.0
            line.append(value * (hard + soft - soft.detach()))
        rows.append(line)
    return graph.replace(x=matrix(rows))


# ------------------------------------------------------------------ Algorithm 1


def contrasted_rows(nodes: Table, graphs: Table, view: GraphBatch, contrast: str) -> list[Table]:
    """For each graph the rows that are told apart: its nodes, or its own graph row."""
    if contrast == "global-global":
        return [[values] for values in graphs]
    return [[nodes[v] for v in own] for own in members(view)]


def one_way(
    rows: list[Table], p: Tensor, others: Table, q: Tensor, score: Score, normalisation: str
) -> Tensor:
    """The Jensen-Shannon bound of one view's rows with the other view's graphs."""
    B = len(others)
    joint: list[Row] = []  # of each graph, one term per row
    product: list[list[Row]] = []  # of each graph, one term per other graph and row
    for k in range(B):
        joint.append([-(1 + (-score(h, others[k], p, q)).exp()).log() for h in rows[k]])
        product.append(
            [
                [(1 + score(h, others[other], p, q).exp()).log() for h in rows[k]]
                for other in range(B)
                if other != k
            ]
        )
    if normalisation == "pairs":
        agree = mean([term for terms in joint for term in terms])
        against = [term for graphs in product for terms in graphs for term in terms]
        return agree - mean(against) if against else agree
    if normalisation == "graphs":
        result = ZERO
        for k in range(B):
            result = result + mean(joint[k])
            if B > 1:
                result = result - mean([mean(terms) for terms in product[k]])
        return result / B
    # Algorithm 1: all B * B pairs of graphs alike; twice, as the others have two terms.
    result = ZERO
    for k in range(B):
        result = result + mean(joint[k]) - total(mean(terms) for terms in product[k])
    return 2 * result / B**2


def algorithm_1(
    first: list[Table],
    first_graphs: Table,
    p_i: Tensor,
    second: list[Table],
    second_graphs: Table,
    p_j: Tensor,
    score: Score,
    contrast: str,
    normalisation: str,
) -> Tensor:
    """The loss of two encoded views; graph rows carry their view's probability."""
    scale_i, scale_j = (p_i, p_j) if contrast == "global-global" else (ONE, ONE)
    there = one_way(first, scale_i, second_graphs, p_j, score, normalisation)
    back = one_way(second, scale_j, first_graphs, p_i, score, normalisation)
    return -(there + back)


def one_way_by_bound(
    bound: str,
    rows: list[Table],
    p: Tensor,
    others: Table,
    q: Tensor,
    score: Score,
    normalisation: str,
) -> Tensor:
    """Any bound of one view's rows with the other view's graphs."""
    scores, positive, weight = [], [], []
    for k, own in enumerate(rows):
        for h in own:
            scores.append([score(h, other, p, q) for other in others])
            positive.append([other == k for other in range(len(others))])
            weight.append(ONE if normalisation == "pairs" else ONE / len(own))
    return BOUNDS[bound](scores, positive, weight)


def one_way_shuffled(
    rows: list[Table],
    corrupted: list[Table],
    p: Tensor,
    others: Table,
    q: Tensor,
    score: Score,
    normalisation: str,
) -> Tensor:
    """The Jensen-Shannon bound where negatives are rows of the same graph, shuffled."""
    joint, product = [], []
    for k, other in enumerate(others):
        joint.append([-(1 + (-score(h, other, p, q)).exp()).log() for h in rows[k]])
        product.append([(1 + score(h, other, p, q).exp()).log() for h in corrupted[k]])
    if normalisation == "pairs":
        return mean([term for terms in joint for term in terms]) - mean(
            [term for terms in product for term in terms]
        )
    return mean([mean(a) - mean(b) for a, b in zip(joint, product, strict=True)])


# ------------------------------------------------------------------ graphs to try things on


def edges(graph: GraphBatch) -> list[Edge]:
    return [(i, j) for i, j in graph.edge_index.T.tolist()]


def weights(graph: GraphBatch) -> Row:
    return [ONE] * graph.num_edges if graph.edge_weight is None else row(graph.edge_weight)


def attributes(graph: GraphBatch) -> Table:
    assert graph.edge_attr is not None
    return table(graph.edge_attr)


def rows_of(values: Tensor, places: Sequence[int]) -> Tensor:
    return matrix([row(values[e]) for e in places]) if places else values[:0]


def members(graph: GraphBatch) -> list[list[int]]:
    """The nodes of each graph."""
    home = graph.batch.tolist()
    return [[v for v in range(len(home)) if home[v] == k] for k in range(graph.num_graphs)]


def edge_tensor(listed: Sequence[Edge]) -> Tensor:
    return torch.tensor(listed, dtype=torch.long).reshape(-1, 2).T


def both_ways(*pairs: Edge) -> list[Edge]:
    return [edge for u, v in pairs for edge in ((u, v), (v, u))]


def random_edges(seed: int, sizes: Sequence[int], density: float) -> list[Edge]:
    chance = torch.Generator().manual_seed(seed)
    first, pairs = 0, []
    for size in sizes:
        for u in range(first, first + size):
            for v in range(u + 1, first + size):
                if float(torch.rand((), generator=chance)) < density:
                    pairs.append((u, v))
        first += size
    return both_ways(*pairs)


SHAPES: dict[str, tuple[list[int], list[Edge]]] = {
    "random sparse": ([4, 3, 6], random_edges(0, [4, 3, 6], 0.3)),
    "random dense": ([5, 4], random_edges(4, [5, 4], 0.8)),
    "random many": ([2, 3, 1, 4, 2], random_edges(2, [2, 3, 1, 4, 2], 0.5)),
    "uneven": ([6, 5], both_ways((0, 1), (1, 2), (2, 3), (0, 4), (6, 7), (7, 8), (9, 10))),
    "one graph": ([5], both_ways((0, 1), (1, 2), (2, 3))),
    "one node": ([1], []),
    "single nodes": ([1, 1, 1], []),
    "no edges": ([3, 2], []),
    "isolated nodes": ([4, 3], both_ways((1, 2), (5, 6))),
    "self-loops": ([3, 2, 1], [*both_ways((0, 1), (3, 4)), (1, 1), (2, 2), (5, 5)]),
    "duplicates": ([4, 3], [*both_ways((0, 1), (0, 1), (2, 3), (4, 5)), (0, 1), (5, 4)]),
    "directed": ([4, 4], [(0, 1), (1, 2), (3, 2), (5, 4), (5, 6), (6, 5), (7, 4)]),
    "complete": ([4, 2], both_ways((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (4, 5))),
    "unsorted edges": ([3, 3], [(5, 3), (1, 0), (3, 4), (0, 2), (4, 3), (2, 0), (0, 1), (3, 5)]),
}


def make_graph(
    name: str,
    *,
    features: int = 3,
    seed: int = 0,
    weighted: bool = True,
    copies: int = 1,
    attributes: int = 0,
) -> GraphBatch:
    """The graphs of ``SHAPES[name]``, as often as asked, with random features and weights.

    Edge attributes, where asked for, differ between the directions of an edge.
    """
    sizes, listed = SHAPES[name]
    number = sum(sizes)
    chance = torch.Generator().manual_seed(seed)
    shifts = number * torch.arange(copies)
    edge_index = (edge_tensor(listed).unsqueeze(1) + shifts.view(1, -1, 1)).flatten(1)
    x = torch.randn(copies * number, features, dtype=torch.float64, generator=chance)
    w = 0.2 + torch.rand(edge_index.size(1), dtype=torch.float64, generator=chance)
    e = torch.randn(edge_index.size(1), attributes, dtype=torch.float64, generator=chance)
    home = torch.repeat_interleave(torch.arange(copies * len(sizes)), torch.tensor(sizes * copies))
    return GraphBatch(
        x=x.requires_grad_(),
        edge_index=edge_index,
        batch=home,
        num_graphs=copies * len(sizes),
        edge_weight=w.requires_grad_() if weighted else None,
        edge_attr=e.requires_grad_() if attributes else None,
    ).validate()


def shaken(module: Module, seed: int = 0) -> Module:
    """The module in float64, with no parameter at a special value such as zero or one."""
    chance = torch.Generator().manual_seed(seed)
    for parameter in module.double().parameters():
        with torch.no_grad():
            noise = torch.randn(parameter.shape, dtype=torch.float64, generator=chance)
            parameter.add_(0.3 * noise)
    return module


# ------------------------------------------------------------------ comparison


def leaves(graph: GraphBatch, *modules: nn.Module) -> list[Tensor]:
    """Everything a gradient can reach."""
    own = [value for value in (graph.edge_weight, graph.edge_attr) if value is not None]
    return [graph.x, *own, *(p for module in modules for p in module.parameters())]


def gradients(output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a fixed weighted sum of the output, zeros where it does not depend."""
    if not inputs or not output.requires_grad:
        return [torch.zeros_like(value) for value in inputs]
    chance = torch.Generator().manual_seed(0)
    factors = torch.randn(output.shape, dtype=torch.float64, generator=chance)
    summed = (output * factors.to(output)).sum()
    return list(torch.autograd.grad(summed, inputs, retain_graph=True, materialize_grads=True))


def assert_agree(
    fast: Tensor, slow: Tensor, inputs: Sequence[Tensor] = (), tolerance: float = 1e-10
) -> None:
    """Both have the same values, and the same gradients with regard to the inputs."""
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)
    for left, right in zip(gradients(fast, inputs), gradients(slow, inputs), strict=True):
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)
