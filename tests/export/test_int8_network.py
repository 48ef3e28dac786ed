"""The choice between int8 weights and int8 activations, without a network."""

import pytest
from tfsparsecap_export import int8_network
from tfsparsecap_export.encode import int8_activations
from tfsparsecap_export.verify.outputs import OutputsDiffer

WEIGHTS = (b"weights", [])


@pytest.fixture
def choose(monkeypatch):
    """`choose(error)`: a file is refused if `error(its content)` is above 0.1."""

    def quantize(prepared, floats, keep_zeros):
        return b"%d floats" % floats, []

    def run(error, *, milliseconds=(2.0, 1.0), quantize=quantize, activations=True):
        def verify(content):
            if error(content) > 0.1:
                raise OutputsDiffer(error(content), "the largest output")

        monkeypatch.setattr(int8_activations, "quantize", quantize)
        monkeypatch.setattr(
            int8_activations,
            "prepare",
            lambda dense, rounded, samples: int8_activations.Prepared(b"", b"", rounded, (), 1),
        )
        monkeypatch.setattr(int8_network, "fastest_runs", lambda contents, sample: milliseconds)
        return int8_network.choose(
            b"dense",
            WEIGHTS,
            dict.fromkeys(range(9)),
            encode=lambda network: network[0],
            verify=verify,
            calibration=[{}],
            held_out={},
            activations=activations,
            keep_zeros=False,
        )

    return run


def test_int8_activations_are_used_if_outputs_stay_similar(choose):
    assert choose(lambda content: 0.05) == ((b"0 floats", []), [])


def test_they_can_be_switched_off(choose):
    assert choose(lambda content: 0.05, activations=False) == (WEIGHTS, [])


def test_layers_that_lose_most_stay_float(choose):
    errors = {b"weights": 0.01, b"0 floats": 0.4, b"1 floats": 0.3, b"2 floats": 0.2}
    network, notes = choose(lambda content: errors.get(content, 0.05))
    assert network == (b"4 floats", [])
    expected = "int8 would change outputs by 40.0% of the largest output."
    assert notes == [f"The activations of 4 of 9 layers stay float: {expected}"]


def test_all_activations_stay_float_if_half_of_the_layers_do_not_suffice(choose):
    network, notes = choose(lambda content: 0.01 if content == b"weights" else 0.2)
    assert network == WEIGHTS
    assert notes == ["Activations stay float: int8 changes outputs by 20.0% of the largest output."]


def test_int8_weights_that_change_outputs_are_refused(choose):
    network, notes = choose(lambda content: 0.5)
    assert network is None
    assert notes == ["Convolutions stay float: int8 changes outputs by 50.0% of the largest output."]


def test_activations_stay_float_if_int8_is_not_faster(choose):
    network, notes = choose(lambda content: 0.01, milliseconds=(1.0, 1.0))
    assert network == WEIGHTS and "1.00 ms with int8 activations, 1.00 ms without" in notes[0]


def test_networks_that_cannot_be_quantized_have_int8_weights(choose):
    def refuse(*arguments, **options):
        raise int8_activations.CannotQuantize("the network has loops")

    network, notes = choose(lambda content: 0.01, quantize=refuse)
    assert network == WEIGHTS and notes == ["Activations stay float: the network has loops."]
