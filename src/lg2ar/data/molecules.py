"""Molecules written as SMILES, read with RDKit (the extra ``lg2ar[chem]``).

Atoms are nodes and bonds are undirected edges; hydrogens are counted with the atom they belong to.
What is told of atoms and bonds is in :mod:`lg2ar.data.chemistry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lg2ar.data.attributes import label_name, settle_labels, short
from lg2ar.data.chemistry import as_graphs, atom_features, bond_features, parse_smiles, quiet
from lg2ar.data.dataset import Dataset
from lg2ar.data.molecule_files import Listing, list_molecules
from lg2ar.data.reading import ReadOptions
from lg2ar.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["atom_features", "bond_features", "read_smiles"]

TOLD = 20  # molecules that could not be read are listed up to here


def read_smiles(
    source: str | Path | Iterable[str] | pd.DataFrame,
    column: str | None = None,
    strict: bool = False,
    labels: str | None = None,
) -> Dataset:
    """Read molecules.

    Molecules that cannot be read are left out, counted and listed in the notes. Salts and mixtures
    are graphs of several parts; a single atom is a graph without edges. All other columns of a
    table become targets; ids are its first column called like one, or else the place in the table.

    Args:
        source: A ``.csv``, ``.tsv`` or ``.parquet`` table, a ``.smi`` file (SMILES, then perhaps a
            name, in each line), a frame of pandas, or SMILES.
        column: Column of the SMILES; found by its name or by what it holds, if not given.
        strict: Refuse what cannot be read, instead of leaving it out.
        labels: Column that holds the labels; one called ``y`` or ``label``, if not given.

    Raises:
        InputError: Naming file and line.
    """
    listing = list_molecules(source, column)
    read, kept, bad = [], [], []
    with quiet():
        for place, text in enumerate(listing.smiles):
            molecule, reason = parse_smiles(text)
            if molecule is None:
                bad.append((place, reason))
                if strict:
                    break
            else:
                read.append(molecule)
                kept.append(place)
        notes = [*listing.notes, *_about_bad(listing, bad, len(kept), strict)]
        graph = as_graphs(read)
    chosen = np.array(kept, dtype=np.int64)
    targets = {name: values[chosen] for name, values in listing.columns.items()}
    found = label_name(labels, targets, listing.where, "molecules")
    y, classes = settle_labels(found, labels, targets, notes)
    return Dataset(
        name=listing.name,
        level="graph",
        graph=graph.validate(listing.where),
        y=y,
        ids=tuple(listing.ids[place] for place in kept),
        classes=classes,
        targets=targets | {listing.column: np.array(listing.smiles, dtype=object)[chosen]},
        notes=tuple(f"{listing.where}: {note}" for note in notes),
        reading=ReadOptions(labels=labels).remembered(
            labels=found, smiles=listing.column if listing.named else None
        ),
    )


def _about_bad(
    listing: Listing, bad: Sequence[tuple[int, str]], good: int, strict: bool
) -> list[str]:
    """Say which molecules were left out, or refuse."""
    if not bad:
        if good:
            return []
        raise InputError(f"{listing.where}: holds no molecules.")
    told = [
        f"{listing.place(place)} {short(listing.smiles[place])}: {reason}"
        for place, reason in bad[:TOLD]
    ]
    if strict:
        raise InputError(f"{listing.where}: {told[0]}; correct it, or leave out --strict.")
    if not good:
        raise InputError(
            f"{listing.where}: none of the {len(bad)} molecules can be read, to begin with "
            f"{told[0]}; name the column of SMILES with --smiles."
        )
    more = f" and {len(bad) - TOLD} more" if len(bad) > TOLD else ""
    return [
        f"{len(bad)} of {good + len(bad)} molecules cannot be read and are left out: "
        f"{', '.join(told)}{more}."
    ]
