"""Checks of settings: unknown options, and settings that exclude or require each other."""

import pytest

from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.contradictions import check_options, check_settings
from tfsparsecap.errors import InputError

FROZEN = ["model.encoder.trainable=false", "training.fine_tune.epochs=2"]
INCEPTION = ["model.encoder.network=inception_v1", "model.encoder.layer=Mixed_3b"]
TAUGHT = ["model.encoder.trainable=true", "training.teacher=runs/teacher"]
SLIM = ["training.slim.ratio=0.5", "training.epochs=5"]
SCST = ["training.start_from=runs/dense", "training.scst.samples=2"]


@pytest.mark.parametrize(
    "settings",
    [
        ["pruning.begin=0.2"],
        ["training.restore_best=true", "training.validation_images=null"],
        [*INCEPTION, "model.encoder.weights=a.ckpt"],
        [*FROZEN, "pruning.encoder=B"],
        SLIM,
        [*TAUGHT, "data.augmentation=[RandomFlip]"],
        [*TAUGHT, "training.teacher_captions=1000"],
        [*SCST, "training.scst.samples=1", "training.scst.baseline=greedy"],
        [*SCST, "training.scst.cider_d=0", "training.scst.bleu_4=1"],
        ["data.kind=flickr", "data.folder=x", "pruning=null"],
    ],
)
def test_valid_settings_pass(settings):
    check_settings(load_config(None, settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["data.trian=3"],
            r"unknown key data\.trian of data\.kind=scenes, whose options are data\.train, .* did you mean"
            r" data\.train\?",
        ),
        (["data.kind=flicker"], r"no data\.kind 'flicker': did you mean flickr\?"),
        (["data.kind=flickr"], r"data\.folder is not set: give the folder of the flickr data"),
        (["data.train=many"], r"data\.train among the settings is 'many'"),
        (["data.features=x"], r"data\.features and model\.encoder are both set"),
        (["model.encoder=null"], r"model\.encoder is null and data\.features is not set"),
        (
            ["model.encoder=null", "data.features=x", "data.augmentation=[RandomHue]"],
            "need images, but there is no encoder",
        ),
        (
            [*TAUGHT, "training.teacher_captions=2000"],
            r"training\.teacher_captions on the command line is 2000: it should be less than .* 1000",
        ),
        (['training.teacher=""'], r"training\.teacher contains an empty text: give the folder .* or set"),
        (["training.teacher=[runs/dense, ' ']"], r"training\.teacher contains an empty text"),
        (['training.start_from=""'], r"training\.start_from contains an empty text.*start_from=null"),
        (["training.gamma_l2=1", "model.encoder.trainable=false"], "but no image encoder is trained"),
        (
            ["training.restore_best=true", "training.validation_images=1"],
            r"restore_best=true needs the validation CIDEr .*validation_images is 1: set it to 2 or more",
        ),
        (["training.clip_value=1"], "both set: set one of them to null"),
        (["pruning.beginn=0.2"], r"unknown key pruning\.beginn .* did you mean pruning\.begin\?"),
        (
            ["pruning.method=l1", "pruning.begin=0.2"],
            r"unknown key pruning\.begin of pruning\.method=l1, whose options are pruning\.lower_bound, ",
        ),
        (
            ["pruning.method=frozen", "pruning.begin=0.2"],
            r"of pruning\.method=frozen, which has no options; remove it",
        ),
        (["pruning.ema=0.9"], r"unknown key pruning\.ema .* did you mean pruning\.ema_decay\?"),
        (["pruning.total_steps=3"], r"unknown key pruning\.total_steps"),
        (["pruning.method=suprmask"], r"no pruning\.method 'suprmask': did you mean supermask\?"),
        (["pruning.method=frozen"], r"method=frozen starts from a trained run: set training\.start_from"),
        (["pruning.method=lottery", "pruning.rounds=0"], r"pruning\.rounds=0 starts from a trained run"),
        ([*FROZEN, "pruning.encoder=C", "pruning.method=snip"], "supports the methods .*, not snip"),
        (["pruning.encoder=A"], r"set model\.encoder\.trainable=false and training\.fine_tune\.epochs"),
        (
            ["model.encoder=null", "data.features=x", "pruning.encoder=A"],
            "needs an encoder that is frozen until",
        ),
        (["pruning.encoder=B", "model.encoder.trainable=false"], r"and training\.fine_tune\.epochs"),
        (
            [*FROZEN, "pruning.encoder=B", "training.epochs=0", "training.start_from=runs/dense"],
            r"encoder=B needs training before fine-tuning, but training\.epochs is 0: set it to 1",
        ),
        ([*INCEPTION, "model.encoder.width=0.5"], r"encoder\.width is 0\.5, but inception_v1 has no"),
        (
            [*INCEPTION, "model.encoder.weights=imagenet"],
            r"weights is 'imagenet', which inception_v1 does not",
        ),
        (["model.encoder.weights=a.ckpt"], r"weights is 'a\.ckpt': use imagenet, null or the folder"),
        (["training.epochs=0"], r"training\.epochs is 0, which needs a trained captioner"),
        (["training.epochs=0", "training.start_from=runs/dense"], r"training\.epochs is 0, which needs"),
        ([*SCST, "training.scst.cider_d=0"], r"training\.scst has no reward: set cider_d or bleu_4"),
        ([*SCST, "training.jit_compile=true"], r"cannot compile training\.scst, whose .*jit_compile=auto"),
        (["training.teacher_loss=hidden", "model.kind=transformer"], "needs one teacher and a transformer"),
        (["training.teacher_loss=hidden", "training.teacher=runs/a"], r"model\.kind=soft_attention: set"),
        (["training.encoder_l2=0.1"], r"encoder_l2 is 0\.1, but model\.kind=soft_attention has no"),
        (["training.teacher_captions=2"], "there is no teacher to write them"),
        (["data.cached_views=2"], r"cached_views is 2, but no features are cached"),
        (
            ["model.encoder.trainable=false", "data.augmentation=[RandomHue]"],
            r"data.augmentation changes images, but features are cached: set data.augmentation=\[\], with",
        ),
        (["training.captions_per_image=5"], r"batch_size is 32, .* training\.captions_per_image=5"),
        (["training.slim.iterations=3"], "each iteration needs at least one epoch"),
        ([*SLIM, "model.encoder.trainable=false"], "all of whose layers are trained"),
        ([*SLIM, "pruning.encoder=true"], "without gates"),
        ([*SLIM, "training.precision=mixed_bfloat16"], r"training\.precision=float32"),
        ([*SCST, "training.scst.samples=1"], r"samples is 1, .* set training\.scst\.baseline=greedy"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(InputError, match=message) as error:
        check_settings(load_config(None, settings))
    assert "\n" not in str(error.value)


def test_a_finished_run_is_read_when_the_run_of_its_encoder_has_gone():
    config = load_config(None, ["model.encoder.weights=runs/gone"])
    assert config.model.encoder.weights == "runs/gone"


def test_null_is_no_teacher():
    for text in ("null", "[]", ""):
        assert load_config(None, [f"training.teacher={text}"]).training.teacher == []


def test_options_are_checked_against_a_signature():
    def load(folder: str, *, count: int = 3, shares: tuple[float, float] = (0.5, 0.5)):
        raise AssertionError("checking does not call it")

    assert check_options("data", {"count": "5"}, load, ["folder"]) == {"count": 5}
    for options, message in (
        ({"coun": 5}, r"unknown key data\.coun among the settings; did you mean data\.count"),
        ({"count": "x"}, r"data\.count among the settings is 'x'"),
        ({"folder": "x"}, r"unknown key data\.folder"),
        ({"minimum_cout": 5}, r"did you mean data\.minimum_count"),
    ):
        with pytest.raises(InputError, match=message):
            check_options("data", options, load, ["folder"])
