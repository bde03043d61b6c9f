"""One linear layer trained by gradient descent, for many splits at once.

The probe that GCA introduced and its successors took over: softmax cross-entropy on the training
rows, full batches, Adam, and the epoch chosen by validation accuracy. GCA's code trains the layer
for 3,000 epochs; here it ends where the validation accuracy has not risen for long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from lg2ar.probes.folds import check_splits
from lg2ar.probes.scaling import standardise
from lg2ar.splits import Splits

EPOCHS = 3000

# Numbers that the training rows of one chunk of splits may hold (1 GiB in float32).
_CHUNK = 2**28


@dataclass(frozen=True)
class LayerAccuracy:
    """Accuracies of the layer of each split, in percent.

    Attributes:
        test: Of the test rows, at the epoch that validation chose, ``[S]``.
        validation: Of the validation rows, at that epoch, ``[S]``.
        epoch: How many epochs that layer was trained for, ``[S]``.
    """

    test: NDArray[np.float64]
    validation: NDArray[np.float64]
    epoch: NDArray[np.int64]


def linear_layer_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    splits: Splits,
    *,
    epochs: int = EPOCHS,
    patience: int = 500,
    learning_rate: float = 1e-2,
    weight_decay: float = 0.0,
    scale: bool = False,
    seed: int = 0,
    device: torch.device | str = "cpu",
    check_every: int = 20,
) -> LayerAccuracy:
    """Test accuracy of a linear layer, at the epoch with the best validation accuracy.

    The same numbers as one layer after the other: Adam treats each weight by itself, so the layers
    of all splits are one tensor. Single precision.

    Args:
        x: Embeddings, ``[N, d]``.
        y: Labels, ``[N]``.
        splits: Masks of the rows, ``[S, N]`` each.
        epochs: Steps of Adam, at most.
        patience: Epochs without a better validation accuracy after which a split's layer is not
            looked at any more, so that what comes out does not depend on the other splits; 0 looks
            to the end.
        learning_rate: Of Adam.
        weight_decay: Of Adam: the L2 penalty's weight.
        scale: Whether features are standardised, by each split's training rows.
        seed: Fixes the initial weights.
        device: Where to compute.
        check_every: Epochs between two looks at the validation accuracy; the last epoch is looked
            at too. Of equally good ones the first is taken.

    Raises:
        InputError: If a split leaves nothing to train on, to choose by or to test on.
    """
    rows = torch.as_tensor(x).detach().to(device, torch.float64)
    names = y.cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    classes, labels = np.unique(names, return_inverse=True)
    _check(rows, labels, splits, epochs, patience, check_every)
    target = torch.from_numpy(labels).to(device)
    if scale:
        # Of all rows first, in double precision: what is left for each split is close to nothing.
        rows = standardise(rows, torch.ones_like(splits.train[:1], device=device)).scaled(rows)[0]
    weight = initial_weights(len(splits.train), rows.shape[1], len(classes), seed)
    longest = int(splits.train.sum(1).max())
    most = max(1, _CHUNK // (longest * rows.shape[1]))
    parts = []
    for first in range(0, len(weight), most):
        some = slice(first, first + most)
        masks = [m[some].to(device) for m in (splits.train, splits.validation, splits.test)]
        layers = _Layers(rows, target, masks, weight[some].to(device), patience, scale=scale)
        optimiser = torch.optim.Adam(
            [layers.weight, layers.bias], lr=learning_rate, weight_decay=weight_decay
        )
        for epoch in range(1, epochs + 1):
            optimiser.zero_grad()
            layers.loss().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if epoch % check_every == 0 or epoch == epochs:
                layers.look(epoch)
                if layers.are_over():
                    break
        parts.append(torch.stack([layers.test, layers.best, layers.epoch]).cpu().numpy())
    test, validation, epoch_numbers = np.concatenate(parts, axis=1)
    return LayerAccuracy(100 * test, 100 * validation, epoch_numbers.astype(np.int64))


def initial_weights(splits: int, width: int, classes: int, seed: int) -> Tensor:
    """Glorot's uniform weights, ``[S, d, classes]``, the same ones on every device."""
    generator = torch.Generator().manual_seed(seed)
    bound = float(np.sqrt(6 / (width + classes)))
    return (torch.rand(splits, width, classes, generator=generator) * 2 - 1) * bound


class _Layers:
    """The layers of some splits, and the best that validation has seen of each."""

    def __init__(
        self,
        rows: Tensor,
        target: Tensor,
        masks: list[Tensor],
        weight: Tensor,
        patience: int,
        *,
        scale: bool,
    ) -> None:
        train, self._validation, test = (mask.float() for mask in masks)
        self._parts = torch.stack([self._validation, test])  # [2, S, N]
        self._target, self._rows = target, rows.float()
        count, place = masks[0].sum(1), masks[0].byte().argsort(dim=1, descending=True, stable=True)
        place = place[:, : int(count.max())]  # [S, m]: training rows first, others pad
        self._weights = train.gather(1, place) / count[:, None]
        self._train = self._rows[place]  # [S, m, d]
        self._wanted = target[place]
        self._scaling = standardise(rows, masks[0]) if scale else None
        if self._scaling is not None:
            self._shift, self._factor = self._scaling.shift.float(), self._scaling.factor.float()
            self._train.sub_(self._shift[:, None]).mul_(self._factor[:, None])
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(weight.new_zeros(len(weight), weight.shape[2]))
        self.best = weight.new_full((len(weight),), -1.0)
        self.test, self.epoch = torch.zeros_like(self.best), torch.zeros_like(self.best)
        self._patience = patience
        self._over = torch.zeros_like(self.best, dtype=torch.bool)

    def loss(self) -> Tensor:
        """Mean cross-entropy of each split's training rows, summed over splits."""
        logits = torch.baddbmm(self.bias[:, None], self._train, self.weight)  # [S, m, classes]
        each = F.cross_entropy(logits.flatten(0, 1), self._wanted.flatten(), reduction="none")
        return each @ self._weights.flatten()

    @torch.no_grad()
    def look(self, epoch: int) -> None:
        """Keep what is better than all before on the validation rows, where that is not over."""
        weight, bias = self.weight.data, self.bias.data
        if self._scaling is not None:  # moved from the rows to the weights
            weight = weight * self._factor[..., None]
            bias = bias - torch.einsum("sd,sdk->sk", self._shift, weight)
        right = torch.stack(
            [
                (self._rows @ w + b).argmax(1) == self._target
                for w, b in zip(weight, bias, strict=True)
            ]
        )
        validation, test = (right * self._parts).sum(2) / self._parts.sum(2)
        better = (validation > self.best) & ~self._over
        self.best = torch.where(better, validation, self.best)
        self.test = torch.where(better, test, self.test)
        self.epoch = torch.where(better, float(epoch), self.epoch)
        if self._patience:
            self._over |= epoch - self.epoch >= self._patience

    def are_over(self) -> bool:
        """Whether none is waited for any more; waits for the device."""
        return bool(self._patience) and bool(self._over.all())


def _check(
    x: Tensor,
    labels: NDArray[np.intp],
    splits: Splits,
    epochs: int,
    patience: int,
    check_every: int,
) -> None:
    if x.dim() != 2 or labels.shape != (len(x),):
        raise ValueError(
            f"expected x [N, d] and y [N], got {list(x.shape)} and {list(labels.shape)}"
        )
    if epochs < 1 or check_every < 1:
        raise ValueError(f"epochs and check_every must be positive, got {epochs}, {check_every}")
    if patience < 0:
        raise ValueError(f"patience must not be negative, got {patience}")
    check_splits(splits, len(x))
    if not bool(x.isfinite().all()):
        raise ValueError("x holds values that are not finite numbers")
