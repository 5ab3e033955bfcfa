"""The table of kernels: what families register is known elsewhere, and registered once."""

from __future__ import annotations

from collections import Counter

from stridewise.ops import OPS
from stridewise.runtime.binding.factories import FACTORIES, KERNELS
from stridewise.targets.onednn.table import _FAMILIES, KINDS, OFFERS


def test_every_kind_of_kernel_has_a_factory_and_an_entry():
    assert KINDS.keys() == FACTORIES.keys() | KERNELS.keys()


def test_kernels_are_for_operators_that_exist():
    assert OFFERS.keys() <= OPS.keys()
    assert {op for offer in OFFERS.values() for op in offer.joins} <= OFFERS.keys()


def test_no_name_is_registered_twice():
    names = Counter(name for family in _FAMILIES for name in family.offers)
    kinds = Counter(name for family in _FAMILIES for name in family.kinds)
    assert {*names.values(), *kinds.values()} == {1}
