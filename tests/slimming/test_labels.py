"""Labels of channels."""

import numpy as np

from tfsparsecap.slimming.labels import Labels


def test_coupling_is_transitive():
    labels = Labels()
    first, second, third = (labels.create(name, "channels", 3) for name in "abc")
    labels.unite(first, second)
    labels.unite(second[::-1], third)
    np.testing.assert_array_equal(labels.classes(), [0, 1, 2, 0, 1, 2, 2, 1, 0])


def test_a_long_chain_is_one_class():
    labels = Labels()
    chain = labels.create("a", "channels", 1000)
    order = np.random.default_rng(0).permutation(1000)
    labels.unite(chain[order[:-1]], chain[order[1:]])
    assert not labels.classes().any()


def test_columns_of_a_row_are_coupled():
    labels = Labels()
    table = labels.create("a", "channels", 6).reshape(2, 3)
    labels.unite_rows(table)
    np.testing.assert_array_equal(labels.classes(), [0, 0, 0, 3, 3, 3])


def test_frozen_and_mixed_labels_are_marked_with_their_reasons():
    labels = Labels()
    axis = labels.create("a", "channels", 3)
    labels.freeze([axis[1:], None], "why")
    labels.mix(axis[:1])
    np.testing.assert_array_equal(labels.frozen(), [False, True, True])
    np.testing.assert_array_equal(labels.mixed(), [True, False, False])
    assert [reason for _, reason in labels.reasons()] == ["why"]
