"""Atoms and bonds as features, by RDKit (the extra ``lg2ar[chem]``).

Features are one-hot with a vocabulary that is fixed here, so that molecules which were not there
when a model was trained have the same ones: the elements of DeepChem, the rest as OGB has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

_ELEMENTS = """
H Li B C N O F Na Mg Al Si P S Cl K Ca Ti V Cr Mn Fe Co Ni Cu Zn Ge As Se Br Zr Pd Ag Cd In Sn Sb I
Yb Pt Au Hg Tl Pb
"""

# What is told of atoms and bonds, and the values that have a place of their own; all others share
# one more place. A property without values is yes or no.
ATOM: dict[str, tuple[str, ...]] = {
    "element": tuple(_ELEMENTS.split()),
    "chirality": ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW"),
    "degree": ("0", "1", "2", "3", "4", "5", "6"),
    "charge": ("-2", "-1", "0", "1", "2"),
    "hydrogens": ("0", "1", "2", "3", "4"),
    "radical electrons": ("0", "1", "2"),
    "hybridisation": ("SP", "SP2", "SP3", "SP3D", "SP3D2"),
    "aromatic": (),
    "in a ring": (),
}
BOND: dict[str, tuple[str, ...]] = {
    "bond": ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC"),
    "stereo": ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS"),
    "conjugated": (),
    "in a ring": (),
}

LONGEST = 10_000  # characters; no molecule is written with more, and parsers recurse


def atom_features() -> tuple[str, ...]:
    """What each node feature of a molecule tells."""
    return _names(ATOM)


def bond_features() -> tuple[str, ...]:
    """What each edge feature of a molecule tells."""
    return _names(BOND)


def _names(properties: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(
        f"{name} {value}".strip()
        for name, values in properties.items()
        for value in ((*values, "other") if values else ("",))
    )


def need_rdkit() -> Any:
    """RDKit's chemistry, or a sentence on how to get it."""
    try:
        from rdkit import Chem
    except ImportError:
        raise InputError(
            "molecules are read with RDKit, which is not here; install it with pip install "
            "'lg2ar[chem]'."
        ) from None
    return Chem


def quiet() -> Any:
    """Keep RDKit from writing to standard error, as long as this is open."""
    need_rdkit()
    from rdkit import rdBase

    return rdBase.BlockLogs()


def parse_smiles(text: Any) -> tuple[Any, str]:
    """A molecule, or None and the reason."""
    chem = need_rdkit()
    if not isinstance(text, str) or not text.strip():
        return None, "is empty"
    if len(text) > LONGEST:
        return None, f"has {len(text)} characters"
    try:
        molecule = chem.MolFromSmiles(text.strip())
        if molecule is not None and molecule.GetNumAtoms():
            return molecule, ""
        raw = chem.MolFromSmiles(text.strip(), sanitize=False)
        if raw is None or not raw.GetNumAtoms():
            return None, "is not SMILES"
        problems = chem.DetectChemistryProblems(raw)
        return None, problems[0].Message() if problems else "is no molecule"
    except RuntimeError:  # RDKit's own checks, on an atom with a thousand bonds for example
        return None, "is no molecule"


def as_graphs(molecules: Sequence[Any]) -> GraphBatch:
    """Molecules side by side, each bond in both directions."""
    atoms: list[tuple[Any, ...]] = []
    bonds: list[tuple[Any, ...]] = []
    ends: list[tuple[int, int]] = []
    sizes = []
    for molecule in molecules:
        first = len(atoms)
        atoms += [_atom(atom) for atom in molecule.GetAtoms()]
        for bond in molecule.GetBonds():
            ends.append((first + bond.GetBeginAtomIdx(), first + bond.GetEndAtomIdx()))
            bonds.append(_bond(bond))
        sizes.append(len(atoms) - first)
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    order = np.lexsort((both[:, 1], both[:, 0]))
    origin = torch.from_numpy(order % max(len(pairs), 1))
    return GraphBatch(
        x=_one_hot(atoms, _numbers(ATOM)),
        edge_index=torch.from_numpy(np.ascontiguousarray(both[order].T)),
        batch=torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        num_graphs=len(sizes),
        edge_attr=_one_hot(bonds, _numbers(BOND))[origin],
    )


def _atom(atom: Any) -> tuple[Any, ...]:
    return (
        atom.GetAtomicNum(),
        atom.GetChiralTag(),
        atom.GetTotalDegree(),
        atom.GetFormalCharge(),
        atom.GetTotalNumHs(),
        atom.GetNumRadicalElectrons(),
        atom.GetHybridization(),
        atom.GetIsAromatic(),
        atom.IsInRing(),
    )


def _bond(bond: Any) -> tuple[Any, ...]:
    return (bond.GetBondType(), bond.GetStereo(), bond.GetIsConjugated(), bond.IsInRing())


def _numbers(properties: dict[str, tuple[str, ...]]) -> list[np.ndarray]:
    """RDKit's own numbers of the values, property by property."""
    chem = need_rdkit()
    table = chem.GetPeriodicTable()
    kinds = {
        "element": table.GetAtomicNumber,
        "chirality": chem.ChiralType.names.__getitem__,
        "hybridisation": chem.HybridizationType.names.__getitem__,
        "bond": chem.BondType.names.__getitem__,
        "stereo": chem.BondStereo.names.__getitem__,
    }
    return [
        np.array([int(kinds.get(name, int)(value)) for value in values], dtype=np.int64)
        for name, values in properties.items()
    ]


def _one_hot(rows: Sequence[tuple[Any, ...]], vocabularies: Sequence[np.ndarray]) -> Tensor:
    """A place for each value of each property, ``[rows, features]``."""
    table = np.array(rows, dtype=np.int64).reshape(-1, len(vocabularies))
    parts = []
    for values, vocabulary in zip(table.T, vocabularies, strict=True):
        if not len(vocabulary):
            parts.append(values[:, None] != 0)
            continue
        match = values[:, None] == vocabulary
        parts += [match, ~match.any(1, keepdims=True)]
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))
