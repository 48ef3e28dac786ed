"""The files in configs/: the captioners of the papers have the published numbers of parameters."""

from pathlib import Path

import keras
import pytest

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.tokenizers import SPECIAL_TOKENS, WordTokenizer
from tfsparsecap.captioning.settings.build import make_captioner
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.contradictions import check_settings
from tfsparsecap.captioning.training.other_runs import check_start
from tfsparsecap.model_summary.summarize import summary

CONFIGS = Path(__file__).parents[3] / "configs"
FILES = sorted(
    str(file.relative_to(CONFIGS).with_suffix(""))
    for file in CONFIGS.rglob("*.yaml")
    if file.parent.name != "studies"
)
#: Numbers in the papers, with a vocabulary of 10 000 words and region features of length 2048; for base-4 and
#: base-2, minus the parameters of the missing layers of encoder and decoder.
PARAMETERS = {
    "updown/base": 53_149_537,
    "ort/base": 55_442_752,
    "ort/small": 16_717_888,
    "ort/xsmall": 4_143_688,
    "ort/base-4": 55_442_752 - 2 * (3_152_904 + 4_204_032),
    "ort/base-2": 55_442_752 - 4 * (3_152_904 + 4_204_032),
    "acort/base": 14_979_347,
    "acort/base-AL": 8_410_379,
    "acort/small": 4_213_779,
    "acort/xsmall": 2_567_435,
}
#: Trained on rewards, and the configuration of the run that it starts from: SMP, Table 3; ACORT, Table 5.
ON_REWARDS = {
    "scst/up_down": "updown/base",
    "scst/ort": "ort/base",
    **{f"scst/acort_{size}": f"acort/{size}" for size in ("base", "small", "xsmall")},
}


@pytest.fixture(scope="module")
def words():
    return WordTokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(10_000 - len(SPECIAL_TOKENS)))])


def captioner_of(name, words, *overrides):
    config = load_config(CONFIGS / f"{name}.yaml", overrides)
    base = config.data.radix_base
    with keras.StatelessScope():  # shapes without values
        return make_captioner(config, RadixTokenizer(words, base) if base else words, weights=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_the_number_of_parameters_is_that_of_the_paper(name, words):
    assert captioner_of(name, words).count_params() == PARAMETERS[name]


@pytest.mark.parametrize(("name", "start"), ON_REWARDS.items())
def test_training_on_rewards_is_that_of_the_papers(name, start):
    config, first = (load_config(CONFIGS / f"{stem}.yaml") for stem in (name, start))
    assert config.training.start_from == f"runs/{first.name}" and config.training.epochs == 0
    check_start(first, config, config.training.start_from)
    # The same captioner and data; dropout is that of pruned captioners.
    dropouts = {"dropout": 0.1, "feature_dropout": 0.1} if "up_down" not in name else {"dropout": 0.1}
    assert config.model == first.model.model_copy(update=dropouts) and config.data == first.data
    scst = config.training.scst
    # SMP, section 5.3, and ACORT, section 5.1: BLEU-4 and CIDEr, mean of the rewards, step schedule.
    assert (scst.cider_d, scst.bleu_4, scst.baseline, scst.schedule) == (1, 1, "all", "step")
    # The authors' scripts.
    assert (scst.epochs, scst.batch_size, scst.samples, scst.dropout) == (10, 5, 15, True)
    training = config.training
    assert (scst.learning_rate, training.adam_beta_2, training.adam_epsilon) == (5e-5, 0.999, 1e-8)
    assert config.decoding.beam == (5 if "acort" in name else 2)  # ACORT, section 5.1


@pytest.mark.parametrize("name", FILES)
def test_every_configuration_can_be_trained(name):
    config = load_config(CONFIGS / f"{name}.yaml", ["data.folder=somewhere"])
    check_settings(config)
    # Runs are named like their files, so that no two of them share a folder.
    assert config.name == name.replace("/", "_").replace("-", "_").lower()
    if config.data.radix_base:
        assert config.data.max_length % 2 == 1, "digits of whole words and the end token"


@pytest.mark.parametrize("name", ["rtic/unpruned", "rtic/proposed", "rtic/hidden_only"])
def test_settings_of_rtic_are_those_of_the_paper(name):
    """The experiments' section, and both lambdas of equation 9."""
    config = load_config(CONFIGS / f"{name}.yaml")
    model, training = config.model, config.training
    heads = (None, 8) if name == "rtic/unpruned" else ([5], 8)  # 60 % of the encoder's width
    assert (model.encoder.image_size, model.size, config.data.minimum_count) == (256, 512, 5)
    assert (model.encoder_heads, model.heads) == heads
    assert (training.batch_size, training.epochs, training.learning_rate) == (32, 20, 0.0003)
    assert (training.weight_decay, training.encoder_l2, training.hidden_weight) == (0.01, 0.01, 0.01)


@pytest.mark.parametrize("name", FILES)
def test_photographs_have_the_size_of_the_papers_images(name):
    config = load_config(CONFIGS / f"{name}.yaml")
    if config.model.encoder is not None and config.data.kind != "scenes":
        papers = 256 if name.startswith("rtic/") and name != "rtic/small" else 224
        assert config.model.encoder.image_size == papers


def test_shared_layers_and_projections_exist_once(words):
    captioner = captioner_of("acort/base", words)
    assert (len(captioner.encoder_layers), len(captioner.decoder_layers)) == (2, 2)
    # Sharing saves a 512 x 512 dense layer with bias in each of the three attentions of a pair of layers.
    unshared = captioner_of(
        "acort/base", words, "model.share_encoder_attention=null", "model.share_decoder_attention=null"
    )
    assert unshared.count_params() - captioner.count_params() == 2 * 3 * (512 * 512 + 512)


def millions(weights):
    return sum(weight.shape.num_elements() for weight in weights) / 1e6


#: Millions of weights in RNN-SMP, Table 6, and of the RNN in Table 5.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "decoder", "cell"), [("lstm", 11.9, 2.62), ("lstm-s", 2.4, None), ("gru", None, 1.97)]
)
def test_sizes_of_soft_attention_are_those_of_the_paper(name, decoder, cell):
    captioner = captioner_of(f"soft_attention/{name}", 9962)
    weights = [
        weight for layer in captioner.layers if layer is not captioner.encoder for weight in layer.weights
    ]
    if decoder:
        # In the paper, the initial carry is 0 and the hidden state comes from 1024 values instead of 832.
        projection = (1024 - 832) * captioner.rnn_size / 1e6
        assert millions(weights) - millions(captioner.initial_carry.weights) + projection == pytest.approx(
            decoder, abs=0.05
        )
    if cell:
        kernels = (captioner.cell.kernel, captioner.cell.recurrent_kernel)
        assert millions(kernels) == pytest.approx(cell, abs=0.005)


#: NNZ in millions, encoder and biases included, and million FLOPs of the dense models in SMP, Table 4.
@pytest.mark.parametrize(
    ("name", "paper", "flops"), [("dense-l", 15.33, 4376), ("dense-m", 3.37, 731), ("dense-s", 2.67, 340)]
)
def test_sizes_and_flops_of_dense_captioners_are_those_of_the_paper(name, paper, flops):
    with keras.StatelessScope():
        captioner = captioner_of(f"soft_attention/{name}", 9962)
        counted = summary(captioner, compress=False, print_fn=lambda text: None).totals["all weights"].flops
    weights = [weight for weight in captioner.weights if "moving_" not in weight.path]
    # In the paper the carry is not initialised.
    assert millions(weights) - millions(captioner.initial_carry.weights) == pytest.approx(paper, abs=0.005)
    # The paper projects the 49 cells to keys and values at each of the 9 x 3 steps; here it is done once.
    kernels = [captioner.attention_features.kernel, captioner.attention_values.kernel]
    again = 2 * 49 * (9 * 3 - 1) * millions(kernels)
    assert counted / 1e6 + again == pytest.approx(flops, rel=0.015)


def test_the_smallest_acort_has_two_layers():
    """ACORT, Table 1, "(0x2)", and section 5.2.3."""
    model = load_config(CONFIGS / "acort/xsmall.yaml").model
    assert (model.layers, model.share_encoder_layers, model.share_decoder_layers) == (2, [0, 0], [0, 0])
