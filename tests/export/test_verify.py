"""Files that say something else than the Keras model are refused."""

import numpy as np
import pytest
from tfsparsecap_export import flatfile, sparse, verify

from tfsparsecap.errors import InputError


def damaged(content, change):
    """The same file with all values of its largest fully connected layer changed."""
    model = flatfile.read_model(content)
    weights = [w for w in sparse.find_weights(model) if w.role == sparse.FULLY_CONNECTED]
    largest = max(weights, key=lambda weight: weight.values.size)
    model.buffers[largest.buffer].data = np.frombuffer(
        change(largest.values).astype(np.float32).tobytes(), np.uint8
    )
    return flatfile.write_model(model)


@pytest.fixture(scope="module")
def dense(exported):
    return exported("blocks", "dense")[0].read_bytes()


def check(content, captioner, export_options, **options):
    samples = export_options["samples"]
    return verify.verify_captions(
        content, captioner, samples, beam=3, max_length=6, **{"all_float": True, **options}
    )


def test_the_right_file_passes(dense, blocks_captioner, export_options):
    found = check(dense, blocks_captioner, export_options, source="pictures")
    assert (found.equal, found.equal_beams, found.samples, found.source) == (1.0, 1.0, 6, "pictures")
    assert found.error < 1e-3 and found.runtime.startswith("LiteRT 2.")


@pytest.mark.parametrize("all_float", [True, False])
def test_nan_is_refused(dense, blocks_captioner, export_options, all_float):
    content = damaged(dense, lambda values: values * np.nan)
    with pytest.raises(InputError, match="NaN"):
        check(content, blocks_captioner, export_options, all_float=all_float, tolerance=1.0)


@pytest.mark.parametrize("all_float", [True, False])
def test_garbage_is_refused_whatever_the_tolerance(dense, blocks_captioner, export_options, all_float):
    content = damaged(dense, lambda values: np.roll(values, 7))
    with pytest.raises(InputError, match="score"):
        check(content, blocks_captioner, export_options, all_float=all_float, tolerance=1.0)


def test_more_different_captions_than_allowed_are_refused(
    dense, blocks_captioner, export_options, monkeypatch
):
    monkeypatch.setitem(verify.SCORE_ERROR, True, 100.0)
    content = damaged(dense, lambda values: values * 0.5)
    with pytest.raises(verify.CaptionsDiffer, match="of 6 captions"):
        check(content, blocks_captioner, export_options)
    found = check(content, blocks_captioner, export_options, tolerance=1.0)
    assert found.equal < 1


def test_what_does_not_load_is_refused(blocks_captioner, export_options):
    with pytest.raises(InputError, match="does not load"):
        check(b"no model at all", blocks_captioner, export_options)
