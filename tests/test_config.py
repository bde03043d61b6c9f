"""Settings: defaults, what is accepted, and what is said of the rest."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lg2ar import Config, InputError
from lg2ar.config import BEFORE, HEAD_NAMES, NODE_LEVEL, parse_setting, read_toml

FIELDS = {item.name: item for item in dataclasses.fields(Config)}
CHOICES = {name: item for name, item in FIELDS.items() if "choices" in item.metadata}
NUMBERS = {name: item for name, item in FIELDS.items() if "range" in item.metadata}
SWITCHES = [name for name, item in FIELDS.items() if isinstance(item.default, bool)]
WHOLE = [name for name, item in NUMBERS.items() if isinstance(item.default, int)]
# Values that go together with any other: nothing here limits what else may be set.
NEUTRAL = {"negatives": "shuffled", "bound": "jsd", "embedding": "before", "calibrate": True}

AT_NODES = ("averaged_features",)  # refused at graph level


def fitting(name: str) -> dict[str, Any]:
    """Settings that let one be anything in its range."""
    return NEUTRAL | ({"level": "node", "heads": ["identity"]} if name in AT_NODES else {})


# Defaults.


def test_the_defaults_are_those_of_the_paper_but_for_what_was_found_better() -> None:
    config = Config.make()
    assert config == Config()
    assert config.level == "graph"
    assert config.heads == HEAD_NAMES
    assert (config.policy, config.discriminator, config.bound) == ("gru", "dot", "jsd")
    assert (config.contrast, config.negatives) == ("local-global", "graphs")
    assert (config.base_encoder, config.projection) == ("gin", True)
    assert (config.readout, config.norm_place) == ("log-sum", "before")


def test_node_level_has_defaults_of_its_own() -> None:
    config = Config.make(level="node")
    assert config.heads == ("identity", "node-dropping", "edge-perturbation", "feature-masking")
    assert (config.base_encoder, config.base_layers, config.readout) == ("gcn", 1, "mean")
    assert (config.projection, config.norm) == (False, False)
    same = {key for key in FIELDS if getattr(config, key) == getattr(Config.make(), key)}
    assert same == set(FIELDS) - set(NODE_LEVEL) - {"level"}


def test_a_file_from_before_a_setting_means_what_was_done_then() -> None:
    file = {key: value for key, value in Config.make().to_dict().items() if key not in BEFORE}
    assert (Config.stored(file).norm_place, Config.stored(file).fanout) == ("after", 0)
    assert Config.stored({**file, "norm_place": "before"}).norm_place == "before"
    assert Config.stored(file).embedding_scale == "as-is"
    assert Config.stored(Config.make(level="node").to_dict()) == Config.make(level="node")


def test_what_is_given_wins_over_the_levels_defaults() -> None:
    config = Config.make({"level": "node", "readout": "sum", "hops": 4}, hops=5)
    assert (config.readout, config.hops) == ("sum", 5)


def test_every_setting_is_described() -> None:
    assert Config.__doc__ is not None
    attributes = Config.__doc__.split("Attributes:")[1]
    described = re.findall(r"^ {8}(\w+): \S", attributes, flags=re.MULTILINE)
    assert described == list(FIELDS)


# In and out.


def settings() -> st.SearchStrategy[dict[str, Any]]:
    """Any settings that go together."""
    values: dict[str, st.SearchStrategy[Any]] = {}
    for name, item in FIELDS.items():
        if name == "heads":
            values[name] = st.lists(st.sampled_from(HEAD_NAMES), min_size=1, unique=True)
        elif name in CHOICES:
            values[name] = st.sampled_from(item.metadata["choices"])
        elif name in SWITCHES:
            values[name] = st.booleans()
        elif name == "method":  # any word: which there are is looked up when one is built
            values[name] = st.text("abc-2", min_size=1)
        else:
            low, high, open_low = item.metadata["range"]
            values[name] = (
                st.integers(low, high)
                if name in WHOLE
                else st.floats(low, high, exclude_min=open_low)
            )
    for name in ("level", *AT_NODES, *NEUTRAL):
        values.pop(name)
    return st.fixed_dictionaries({}, optional=values).map(lambda given: NEUTRAL | given)


@given(given_settings=settings())
def test_a_config_survives_json(given_settings: dict[str, Any]) -> None:
    config = Config.make(given_settings)
    assert Config.make(json.loads(config.to_json())) == config
    assert Config.make(config.to_dict()) == config
    for key, value in given_settings.items():
        assert getattr(config, key) == (tuple(value) if key == "heads" else value)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_json_holds_every_setting(level: str) -> None:
    config = Config.make(level=level)
    stored = json.loads(config.to_json())
    assert list(stored) == list(FIELDS)
    assert stored["heads"] == list(config.heads)
    assert Config.make(stored) == config


def test_toml_comes_in(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'policy = "deepset"\nhidden = 64\nratio = 0.6\nnorm = false\n'
        'heads = ["identity", "sub-graph"]\n',
        encoding="utf-8",
    )
    config = Config.from_toml(path, hidden=32)
    assert config == Config.make(
        policy="deepset", hidden=32, ratio=0.6, norm=False, heads=["identity", "sub-graph"]
    )
    assert Config.from_toml(str(path)).hidden == 64
    assert Config.make(json.loads(config.to_json())) == config


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml.*no such"):
        Config.from_toml(tmp_path / "nowhere.toml")


def test_a_file_that_is_not_toml_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("hidden = 64\nlayers = = 3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.toml.*not valid TOML.*line 2"):
        Config.from_toml(path)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"hidden = 64 # \xff\xfe\n")
    with pytest.raises(InputError, match=r"run\.toml.*cannot be read"):
        Config.from_toml(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_toml(tmp_path)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config.make().hidden = 3  # type: ignore[misc]


def test_replace_checks_like_make() -> None:
    config = Config.make(hidden=32)
    other = config.replace(policy="Deep_Set", layers=2)
    assert (other.policy, other.layers, other.hidden) == ("deepset", 2, 32)
    assert (config.policy, config.layers) == ("gru", 3)
    with pytest.raises(InputError, match="hidden"):
        config.replace(hidden=0)
    with pytest.raises(InputError, match=r"hiden.*hidden"):
        config.replace(hiden=5)


def test_replace_keeps_what_a_level_filled_in() -> None:
    config = Config.make(level="node").replace(hidden=8)
    assert config == Config.make(level="node", hidden=8)


def test_making_a_config_leaves_the_given_settings_alone() -> None:
    given_settings: dict[str, Any] = {"level": "node", "heads": ["identity"]}
    Config.make(given_settings, hidden=3)
    assert given_settings == {"level": "node", "heads": ["identity"]}


# Unknown keys and wrong values.


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("hiden", "hidden"), ("learning-rate", "learning_rate"), ("temprature", "temperature")],
)
def test_an_unknown_key_is_told_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"unknown setting '{wrong}'.*did you mean '{meant}'"):
        Config.make({wrong: 1})


def test_a_key_like_no_other_is_told_them_all() -> None:
    with pytest.raises(
        InputError, match=r"'qqqq'; known are level, method, policy, .*checkpoint_every"
    ):
        Config.make({"qqqq": 1})


@pytest.mark.parametrize("value", [3, "", None, ["lg2ar"]])
def test_a_method_is_a_word(value: Any) -> None:
    with pytest.raises(InputError, match=r"method = .* must be a word"):
        Config.make(method=value)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_ends_of_a_range_belong_to_it(name: str) -> None:
    low, high, open_low = NUMBERS[name].metadata["range"]
    assert getattr(Config.make(fitting(name), **{name: high}), name) == high
    if open_low:
        with pytest.raises(InputError, match=f"{name} = .*above {low:g} and up to"):
            Config.make(NEUTRAL, **{name: low})
    else:
        assert getattr(Config.make(fitting(name), **{name: low}), name) == low


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_range_is_told_the_range(name: str) -> None:
    low, high, _ = NUMBERS[name].metadata["range"]
    for value in (low - 1, high + 1, float("inf"), float("-inf")):
        with pytest.raises(InputError, match=rf"^{name} = .*{low:g} .*{re.escape(f'{high:g}')}"):
            Config.make(NEUTRAL, **{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False, "64", None, [1], float("nan")])
def test_what_is_no_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name} = {re.escape(repr(value))} must be a number"):
        Config.make(NEUTRAL, **{name: value})


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_number_may_be_written_as_a_float(name: str) -> None:
    found = getattr(Config.make(fitting(name), **{name: 64.0}), name)
    assert found == 64
    assert isinstance(found, int)
    with pytest.raises(InputError, match=f"^{name} = 64.5 must be a whole number"):
        Config.make(NEUTRAL, **{name: 64.5})


def test_a_float_may_be_written_as_a_whole_number() -> None:
    found = Config.make(temperature=2).temperature
    assert isinstance(found, float)


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", [0, 1, "true", None, 1.0])
def test_a_switch_is_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name} = {value!r} must be true or false"):
        Config.make({name: value})


@pytest.mark.parametrize("name", [name for name in CHOICES if name != "heads"])
@pytest.mark.parametrize("value", ["nonsense", "", 3, None, 1.0, ["graph"]])
def test_a_wrong_choice_is_told_the_right_ones(name: str, value: Any) -> None:
    choices = ", ".join(CHOICES[name].metadata["choices"])
    with pytest.raises(InputError, match=rf"^{name} = .* must be one of {choices}\.$"):
        Config.make({name: value})


@pytest.mark.parametrize("name", [name for name in CHOICES if name != "heads"])
def test_a_choice_may_be_spelt_in_several_ways(name: str) -> None:
    for choice in CHOICES[name].metadata["choices"]:
        for spelling in (choice, choice.upper(), choice.replace("-", "_"), choice.title()):
            more = {"heads": ["identity"]} if name == "level" else {}
            assert getattr(Config.make({name: spelling}, **more), name) == choice


# Heads.


def test_heads_may_be_any_subset_in_any_order() -> None:
    assert Config.make(heads=["sub-graph", "identity"]).heads == ("sub-graph", "identity")
    assert Config.make(heads=("Node_Dropping",)).heads == ("node-dropping",)
    assert Config.make(heads="subgraph").heads == ("sub-graph",)


@pytest.mark.parametrize("value", [[], (), None, 3, True, {}])
def test_at_least_one_head_is_needed(value: Any) -> None:
    with pytest.raises(InputError, match=r"^heads = .*at least one augmentation"):
        Config.make(heads=value)


def test_no_head_is_named_twice() -> None:
    with pytest.raises(InputError, match=r"^heads = .*'identity'.* twice"):
        Config.make(heads=["identity", "Identity"])


@pytest.mark.parametrize("value", [["rotate"], ["identity", 3], [["identity"]]])
def test_a_wrong_head_is_told_the_right_ones(value: Any) -> None:
    with pytest.raises(InputError, match=f"^heads = .* one of {', '.join(HEAD_NAMES)}"):
        Config.make(heads=value)


# What does not go together.


def test_averaged_features_are_refused_at_graph_level() -> None:
    with pytest.raises(InputError, match="averaged_features = 1 stand beside the rows of nodes"):
        Config.make(averaged_features=1)
    assert Config.make(level="node", averaged_features=1).averaged_features == 1


def test_the_sub_graph_head_is_refused_at_node_level() -> None:
    with pytest.raises(InputError, match=r"sub-graph head.*node level.*leave it out"):
        Config.make(level="node", heads=["identity", "Sub_Graph"])
    assert Config.make(level="node", heads=["identity"]).heads == ("identity",)


@pytest.mark.parametrize("bound", ["nce", "nt-xent", "dv"])
def test_graph_pairs_go_with_jsd_only(bound: str) -> None:
    with pytest.raises(InputError, match=f"graph-pairs.*jsd.*'{bound}'.*'graphs' or 'pairs'"):
        Config.make(normalisation="graph-pairs", bound=bound)
    with pytest.raises(InputError, match="graph-pairs"):
        Config.make(normalisation="graph-pairs").replace(bound=bound)
    assert Config.make(normalisation="graph-pairs", bound="jsd").normalisation == "graph-pairs"


def test_one_graph_alone_has_no_other_to_contrast_with() -> None:
    with pytest.raises(InputError, match=r"batch_size = 1 .*at least 2.*shuffled"):
        Config.make(batch_size=1)
    assert Config.make(batch_size=1, negatives="shuffled").batch_size == 1


@pytest.mark.parametrize("other", [{"calibrate": False}, {"embedding": "after"}])
def test_the_standard_scale_is_of_calibrated_rows_before_the_projection(
    other: dict[str, Any],
) -> None:
    told = r"'standard' needs calibrate = true and embedding = 'before'.*; set these, or use 'unit'"
    with pytest.raises(InputError, match=told):
        Config.make(other, embedding_scale="standard")
    with pytest.raises(InputError, match="'standard'"):
        Config.make(embedding_scale="standard").replace(**other)
    for scale in ("as-is", "unit"):
        assert Config.make(other, embedding_scale=scale).embedding_scale == scale


# Settings on a command line.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hidden=64", ("hidden", 64)),
        ("hidden = 64", ("hidden", 64)),
        ("learning_rate=1e-3", ("learning_rate", 1e-3)),
        ("norm=false", ("norm", False)),
        ("policy=deepset", ("policy", "deepset")),
        ('policy="deepset"', ("policy", "deepset")),
        ("features=one-hot-degree", ("features", "one-hot-degree")),
        ("heads=identity", ("heads", ["identity"])),
        ("heads=identity, node-dropping", ("heads", ["identity", "node-dropping"])),
        ('heads=["identity", "sub-graph"]', ("heads", ["identity", "sub-graph"])),
        ("policy=", ("policy", "")),
        ("policy=a=b", ("policy", "a=b")),
    ],
)
def test_a_setting_is_split_and_read(text: str, expected: tuple[str, Any]) -> None:
    found = parse_setting(text)
    assert found == expected
    assert type(found[1]) is type(expected[1])


@pytest.mark.parametrize("text", ["hidden", "", "hidden: 64"])
def test_a_setting_without_an_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"'{text}' is not of the form key=value"):
        parse_setting(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden=true", "hidden = True must be a number"),
        ("hidden=many", "hidden = 'many' must be a number"),
        ("norm=1", "norm = 1 must be true or false"),
        ("policy=", "policy = '' must be one of"),
        ("ratio=nan", "ratio = nan must be a number"),
        ("=3", "unknown setting ''"),
        ("heads=", "heads = '' must be one of"),
    ],
)
def test_a_bad_setting_is_read_and_then_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Config.make(dict([parse_setting(text)]))


@pytest.mark.parametrize(("older", "today"), [(True, "printed"), (False, "off")])
def test_a_switch_that_became_a_choice_is_still_read(older: bool, today: str) -> None:
    assert Config.make(scale_by_probability=older).scale_by_probability == today
    assert Config.make().replace(scale_by_probability=older).scale_by_probability == today
