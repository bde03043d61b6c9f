"""The commands for trained encoders that are handed on: make one, and check its scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lg2ar.cli.options import (
    DataOption,
    DeviceOption,
    SettingOption,
    look_for_data_in,
    read_settings,
)

FolderOption = Annotated[Path, typer.Option(help="Folder of the encoders.")]
ENCODERS = Path("results") / "encoders"


def ship(
    name: Annotated[str, typer.Argument(metavar="DATASET", help="A benchmark data set.")],
    preset: Annotated[str, typer.Option(help="Named settings to start from.")] = "paper",
    setting: SettingOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    encoders: FolderOption = ENCODERS,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Train an encoder on a benchmark and keep it, small, with the scores it reaches."""
    from lg2ar.cli.progress import progress
    from lg2ar.data.benchmarks import find_benchmark
    from lg2ar.shipping import ship

    look_for_data_in(data)
    path = encoders / f"{find_benchmark(name).name}.safetensors"
    with progress() as (on_start, on_epoch):
        shipped = ship(
            name,
            path,
            preset=preset,
            settings=read_settings(None, setting, None),
            seed=seed,
            device=device,
            on_start=on_start,
            on_epoch=on_epoch,
        )
    for claim in shipped.claims:
        before = sum(claim.untrained) / len(claim.untrained)
        print(f"{claim.protocol}: {claim.mean:.2f} (untrained {before:.2f})")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def verify(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Data sets of shipped encoders, or their files."),
    ],
    encoders: FolderOption = ENCODERS,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Compute the scores of shipped encoders again and compare them with the recorded ones."""
    from lg2ar.data.benchmarks import find_benchmark
    from lg2ar.shipping import verify

    look_for_data_in(data)
    wrong = 0
    for name in names:
        path = Path(name)
        if path.suffix != ".safetensors":
            path = encoders / f"{find_benchmark(name).name}.safetensors"
        for check in verify(path, device=device):
            verdict = "the same" if check.holds else "NOT THE SAME"
            print(
                f"{path.stem}, {check.protocol}: recorded {check.recorded:.2f}, computed again "
                f"{check.found:.2f}: {verdict}",
                flush=True,
            )
            wrong += not check.holds
    if wrong:
        print(f"lg2ar: {wrong} scores are not what was recorded.", file=sys.stderr)
        raise typer.Exit(2)
