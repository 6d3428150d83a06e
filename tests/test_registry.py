from __future__ import annotations

import pytest

from privbench.errors import InputError
from privbench.registry import GROUPS, Registry


def test_unknown_names_answer_with_near_matches(registry: Registry) -> None:
    with pytest.raises(InputError, match="did you mean label/spectral"):
        registry.get("attacks", "label/spectrl")


def test_a_collision_shows_both(registry: Registry) -> None:
    with pytest.raises(InputError, match=r"registered twice: privbench\.targets\.prism.* and other:Thing"):
        registry.add("targets", "prism", "other:Thing")


def test_a_plugin_that_cannot_be_imported_is_named(registry: Registry) -> None:
    broken = registry.add("attacks", "label/mine", "no_such_module:Attack")
    with pytest.raises(InputError, match=r"label/mine.*no_such_module"):
        broken.get("attacks", "label/mine")


def test_a_plugin_of_the_wrong_type_is_refused(registry: Registry) -> None:
    wrong = registry.add("attacks", "label/mine", "collections:OrderedDict")
    with pytest.raises(InputError, match=r"not a subclass of privbench\.attack:Attack"):
        wrong.get("attacks", "label/mine")


def test_adding_leaves_the_original_untouched(registry: Registry) -> None:
    registry.add("attacks", "label/mine", "x:y")
    assert "label/mine" not in registry.names("attacks")


def test_families_select_their_members(registry: Registry) -> None:
    kinds = "answer-length", "gradient-match", "gradient-match-perturbed", "oracle-lr", "spectral", "update-counts"
    assert registry.select("attacks", ["label"]) == tuple(f"label/{kind}" for kind in kinds)
    names = (
        "affine-token",
        "bisr",
        "embedding-columns",
        "fsha",
        "learned-token",
        "mlp",
        "nearest-token",
        "noise-aware-token",
        "optimise",
    )
    names += "relaxation", "rescaled-token", "ridge", "sdar", "searched-token", "sequence", "span", "unsplit"
    names += ("update-match",)
    assert registry.select("attacks", ["inversion"]) == tuple(f"inversion/{name}" for name in names)
    assert registry.select("attacks", ["all"]) == registry.names("attacks")


def test_selecting_nothing_known_is_an_error(registry: Registry) -> None:
    with pytest.raises(InputError, match="unknown attack 'memberships'"):
        registry.select("attacks", ["memberships"])


@pytest.mark.parametrize("group", GROUPS)
def test_every_built_in_loads_and_carries_its_own_name(registry: Registry, group: str) -> None:
    for name in registry.names(group):  # type: ignore[arg-type]
        assert registry.get(group, name).card.name == name  # type: ignore[arg-type]
