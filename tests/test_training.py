"""Training: seeds, the coin, early stopping, resume, broken losses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lg2ar.config import Config
from lg2ar.data.batches import GraphStore
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import NonFiniteLossError
from lg2ar.graph import GraphBatch
from lg2ar.model import LG2AR, build
from lg2ar.training import Batches, Trainer


def small_graphs() -> GraphBatch:
    data = toy_graphs(num_graphs=24, seed=1).graph
    return FeatureRecipe.settle("degree", data).apply(data)


def make(seed: int = 0, device: str = "cpu", **settings: Any) -> tuple[Trainer, Batches]:
    config = Config.make({"hidden": 8, "layers": 2, "dropout": 0.1, "seed": seed})
    graph = small_graphs()
    store = GraphStore(graph, device)
    model = build(config, graph.num_features).to(device)
    trainer = Trainer(model, learning_rate=1e-2, seed=seed, **settings)
    return trainer, lambda epoch_seed: store.epoch(8, epoch_seed)


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return all(torch.equal(left[key], right[key]) for key in left)


def snapshot(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def changed(module: torch.nn.Module, before: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(p, before[name]) for name, p in module.named_parameters())


def test_the_same_seed_gives_the_same_weights_and_history(device: torch.device) -> None:
    runs = []
    for noise in (0, 1):
        torch.manual_seed(noise)  # what the caller drew before must not matter
        trainer, batches = make(seed=3, device=device.type)
        trainer.fit(batches, 3)
        runs.append(trainer)
    assert same_weights(runs[0].model, runs[1].model)
    assert [r.loss for r in runs[0].history] == [r.loss for r in runs[1].history]
    assert [r.draws for r in runs[0].history] == [r.draws for r in runs[1].history]


def test_another_seed_gives_other_weights() -> None:
    first, batches = make(seed=3)
    second, _ = make(seed=4)
    first.fit(batches, 1)
    second.fit(batches, 1)
    assert not same_weights(first.model, second.model)


def test_training_leaves_the_callers_randomness_alone() -> None:
    trainer, batches = make()
    before = torch.get_rng_state()
    trainer.fit(batches, 1)
    assert torch.equal(before, torch.get_rng_state())


def test_the_coin_steps_one_encoder_and_policy_and_drawn_heads_always() -> None:
    trainer, batches = make()
    seen = set()
    torch.manual_seed(0)
    for _ in range(4):
        for batch in batches(0):
            model = trainer.model
            assert isinstance(model, LG2AR)
            base, augmentation = snapshot(model.base_encoder), snapshot(model.augmentation_encoder)
            policy = snapshot(model.policy)
            output, step_base = trainer.step(batch)
            assert changed(model.base_encoder, base) is step_base
            assert changed(model.augmentation_encoder, augmentation) is not step_base
            assert changed(model.policy, policy)
            stepped = model.base_encoder if step_base else model.augmentation_encoder
            resting = model.augmentation_encoder if step_base else model.base_encoder
            assert all(p.grad is not None for p in stepped.network.parameters())
            assert all(p.grad is None and p.requires_grad for p in resting.parameters())
            drawn = {output.draw.i, output.draw.j}
            for place, head in enumerate(model.heads):
                has_gradient = [p.grad is not None for p in head.parameters()]
                assert all(has_gradient) if place in drawn else not any(has_gradient)
            seen.add(step_base)
    assert seen == {True, False}


def test_the_coin_is_fair() -> None:
    trainer, batches = make()
    trainer.fit(batches, 60)
    steps = sum(record.steps for record in trainer.history)
    base = sum(record.base_steps for record in trainer.history)
    assert steps == 180
    assert abs(base - steps / 2) < 4 * math.sqrt(steps) / 2  # four standard deviations


def test_history_tells_what_happened() -> None:
    trainer, batches = make()
    trainer.fit(batches, 2)
    assert [record.epoch for record in trainer.history] == [1, 2]
    for record in trainer.history:
        assert record.steps == 3
        assert sum(map(sum, record.draws)) == 3
        assert len(record.draws) == 5
        assert sum(record.probabilities) == pytest.approx(1, abs=1e-5)
        assert 0 < record.mean_edge_weight < 10
        assert record.seconds > 0
        assert record.peak_memory > 0


def resumed(stop_at: int, epochs: int, **settings: Any) -> tuple[Trainer, Trainer]:
    whole, batches = make(**settings)
    whole.fit(batches, epochs)
    first, _ = make(**settings)
    first.fit(batches, stop_at)
    second, _ = make(**settings)
    second.restore(*first.state())
    second.fit(batches, epochs)
    return whole, second


@pytest.mark.parametrize("patience", [0, 3])
def test_a_resumed_run_equals_an_uninterrupted_one(patience: int, device: torch.device) -> None:
    whole, second = resumed(3, 7, patience=patience, device=device.type)
    assert same_weights(whole.model, second.model)
    assert [r.loss for r in whole.history] == [r.loss for r in second.history]
    assert whole.best_epoch == second.best_epoch
    result, other = whole.result(), second.result()
    assert all(torch.equal(result[key], other[key]) for key in result)


def test_without_the_optimizers_moments_a_resumed_run_would_differ() -> None:
    whole, batches = make()
    whole.fit(batches, 4)
    first, _ = make()
    first.fit(batches, 2)
    tensors, progress = first.state()
    second, _ = make()
    second.restore({k: v for k, v in tensors.items() if k.startswith("model.")}, progress)
    second.fit(batches, 4)
    assert not same_weights(whole.model, second.model)


def scripted_losses(trainer: Trainer, losses: list[float]) -> None:
    """Have epochs report these losses while the weights go on changing."""
    remaining = iter(losses)
    original = trainer._run_epoch

    def run_epoch(batches: Batches) -> Any:
        trainer._remember_best = lambda: None  # type: ignore[method-assign]
        record = original(batches)
        del trainer._remember_best
        trainer.history[-1] = type(record)(**{**record.to_dict(), "loss": next(remaining)})
        trainer._remember_best()
        return trainer.history[-1]

    trainer._run_epoch = run_epoch  # type: ignore[method-assign]


def test_patience_stops_and_keeps_the_weights_of_the_lowest_loss() -> None:
    trainer, batches = make(patience=3)
    scripted_losses(trainer, [5.0, 4.0, 4.5, 4.0, 4.2, 1.0])
    kept: dict[str, torch.Tensor] = {}

    def on_epoch(record: Any) -> None:
        if record.epoch == 2:
            kept.update({k: v.clone() for k, v in trainer.model.state_dict().items()})

    trainer.fit(batches, 100, on_epoch=on_epoch)
    assert trainer.epoch == 5  # three epochs without a lower loss than the second's
    assert trainer.stopped_early
    assert trainer.best_epoch == 2
    assert all(torch.equal(value, kept[key]) for key, value in trainer.result().items())
    assert not all(
        torch.equal(value, kept[key]) for key, value in trainer.model.state_dict().items()
    )


def test_without_patience_the_last_weights_are_the_result() -> None:
    trainer, batches = make()
    trainer.fit(batches, 2)
    state = trainer.model.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in trainer.result().items())


def test_a_broken_loss_stops_the_run_and_keeps_the_last_good_state() -> None:
    trainer, batches = make()
    good, _ = make()
    good.fit(batches, 5)

    def breaking(seed: int) -> Any:
        for batch in batches(seed):
            broken = batch.x * float("nan") if trainer.epoch == 5 else batch.x
            yield batch.replace(x=broken)

    with pytest.raises(
        NonFiniteLossError, match=r"epoch 6, step 1.*learning_rate.*epoch 5 is kept"
    ):
        trainer.fit(breaking, 10, checkpoint_every=4)
    assert trainer.epoch == 5
    assert same_weights(trainer.model, good.model)


def test_a_broken_weight_is_noticed_even_if_the_loss_is_a_number() -> None:
    trainer, batches = make()
    weight = next(trainer.model.parts()["always"][0].parameters())

    def on_last_batch(seed: int) -> Any:
        yield from batches(seed)
        with torch.no_grad():
            weight[0] = float("inf")

    with pytest.raises(NonFiniteLossError, match="weight became infinite"):
        trainer.fit(on_last_batch, 2)
    assert all(p.isfinite().all() for p in trainer.model.parameters())


def test_checkpoints_come_every_few_epochs_and_at_the_end() -> None:
    trainer, batches = make()
    saved: list[int] = []
    trainer.fit(batches, 7, on_checkpoint=lambda: saved.append(trainer.epoch), checkpoint_every=3)
    assert saved == [3, 6, 7]
    saved.clear()
    trainer.fit(batches, 7, on_checkpoint=lambda: saved.append(trainer.epoch))
    assert saved == [7]  # nothing left to train, but still what there is


def test_clipping_bounds_the_gradient() -> None:
    trainer, batches = make(clip=1e-3)
    for batch in batches(0):
        trainer.step(batch)
        stepped = [
            p.grad
            for optimizer in trainer.optimizers.values()
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        smallest = min(float(gradient.norm()) for gradient in stepped)
        assert smallest <= 1e-3


def test_a_model_with_nothing_but_encoders_trains() -> None:
    config = Config.make({"hidden": 8, "layers": 2, "heads": ["identity"], "policy": "random"})
    graph = small_graphs()
    store = GraphStore(graph)
    trainer = Trainer(build(config, graph.num_features), learning_rate=1e-2)
    assert set(trainer.optimizers) == {"augmentation", "base"}
    trainer.fit(lambda seed: store.epoch(8, seed), 2)
    assert trainer.history[-1].draws == [[3]]


def test_an_epoch_without_batches_is_refused() -> None:
    trainer, _ = make()
    with pytest.raises(ValueError, match="at least one batch"):
        trainer.fit(lambda seed: [], 1)


def test_an_encoder_that_rests_changes_no_other_gradient() -> None:
    """The gradients that are used are those of a backward pass through everything."""
    for seed in range(4):
        trainer, batches = make(seed=seed)
        batch = next(iter(batches(0)))
        torch.manual_seed(seed)
        _, step_base = trainer.step(batch)
        got = {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}
        whole, _ = make(seed=seed)
        torch.manual_seed(seed)
        torch.rand(())  # the coin
        whole.model(batch).loss.backward()
        resting = "augmentation_encoder" if step_base else "base_encoder"
        for name, p in whole.model.named_parameters():
            if p.grad is not None and not name.startswith(resting):
                assert torch.equal(p.grad, got[name])


def test_an_interrupt_in_the_middle_of_an_epoch_leaves_the_last_whole_one() -> None:
    trainer, batches = make()
    good, _ = make()
    good.fit(batches, 2)
    saved: list[int] = []

    def interrupted(seed: int) -> Any:
        for place, batch in enumerate(batches(seed)):
            if trainer.epoch == 2 and place == 2:
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt):
        trainer.fit(interrupted, 9, on_checkpoint=lambda: saved.append(trainer.epoch))
    assert saved == [2]
    assert same_weights(trainer.model, good.model)
    trainer.fit(batches, 4)
    good.fit(batches, 4)
    assert same_weights(trainer.model, good.model)


@pytest.mark.parametrize(("error", "saved"), [(OSError, 2), (KeyboardInterrupt, 1)])
def test_an_interrupt_while_an_error_is_answered_does_not_spoil_the_save(
    error: type[BaseException], saved: int
) -> None:
    """Such as of a process that is stopped while it saves because another one was; not twice."""
    trainer, batches = make()
    good, _ = make()
    good.fit(batches, 1)
    calls: list[int] = []

    def failing(seed: int) -> Any:
        if trainer.epoch == 1:
            raise error
        return batches(seed)

    def save() -> None:
        calls.append(trainer.epoch)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.fit(failing, 9, on_checkpoint=save)
    assert calls == [1] * saved
    assert same_weights(trainer.model, good.model)


def test_patience_added_on_the_way_counts_from_there() -> None:
    first, batches = make()
    first.fit(batches, 3)
    second, _ = make(patience=2)
    second.restore(*first.state())
    assert not second.stopped_early
    second.fit(batches, 30)
    assert second.epoch > 4
    assert second.best_epoch > 3
    assert second.best_weights
