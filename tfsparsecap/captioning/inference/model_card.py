"""Model cards: what a published captioner is, how to use it, and how good it is."""

from typing import Any

from tfsparsecap.captioning.encoder_catalogue import entry_of
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.core.installation import pip_install

#: Scores of a card, as a description names them, and their titles.
_SCORES = {
    **{"CIDEr": "CIDEr", "BLEU-1": "BLEU-1", "BLEU-4": "BLEU-4", "METEOR": "METEOR", "ROUGE-L": "ROUGE-L"},
    **{"SPICE": "SPICE", "object_recall": "object recall", "object_hallucination": "object hallucination"},
}
#: What is known of the terms of the data, by its kind.
_TERMS = {
    "flickr": "Flickr8k and Flickr30k: the photographs belong to their owners, and the data sets are for"
    " research and education only, so that the files here are for non-commercial use.",
    "coco": "MS-COCO: captions and labels are under CC BY 4.0; the photographs belong to their owners.",
    "scenes": "Drawings of coloured shapes that tfsparsecap makes: no restrictions.",
    "table": "Images and captions of the publisher, who chose the licence above.",
}
_CARD = """\
---
{metadata}
---

# {name}

An image captioner ({kind}) as one `.tflite` file of {megabytes:.1f} MB: {takes} in, caption out. Made with
tfsparsecap ([paper](https://arxiv.org/abs/2110.03298)).

## Use

With tfsparsecap and its extras `export` and `huggingface`, installed once:

```console
{install}
```

```python
import tfsparsecap as sc

captioner = sc.load("hf://{name}")
print(captioner.generate({image})[0])
```

```console
python -m tfsparsecap.caption hf://{name} {argument}
```

The file runs on the stock TensorFlow Lite runtime, on phones too; `captioner.json` in it (try `unzip -l
model.tflite`) says what it takes and gives. `config.yaml` has the settings of the training.

## Scores

{scores} {confidence}

## Data

{data}

## Licences

- the files here: `{licence}`
- the encoder's published weights: {encoder}
- tfsparsecap: Apache-2.0

## Limits

Captions can be wrong, and repeat what captions of the training data say about people. Do not use them where a
wrong caption can do harm.
"""


def model_card(
    name: str, description: dict[str, Any], config: Config, data: str, size: int, licence: str = "other"
) -> str:
    """The content of `README.md` beside a captioner on the Hugging Face Hub.

    Args:
        name: `USER/NAME`.
        description: the content of `captioner.json` in the file, see `bundle.read_bundle`.
        config: settings of the run.
        data: what it was trained on.
        size: bytes of the file.
        licence: an identifier of the hub.

    Returns:
        Markdown, with metadata for the hub in front.
    """
    from huggingface_hub import EvalResult, ModelCardData

    evaluation = description.get("scores") or {}
    scores = {
        title: evaluation[key]
        for key, title in _SCORES.items()
        if isinstance(evaluation.get(key), int | float)
    }
    metadata = ModelCardData(
        library_name="tfsparsecap",
        pipeline_tag="image-to-text",
        license=licence,
        tags=["image-captioning", "tflite", "litert", "keras", "pruning", "sparse"],
        model_name=name,
        eval_results=[
            EvalResult("image-to-text", config.data.kind, data, title, value, dataset_split="test")
            for title, value in scores.items()
        ],
    )
    takes = {"takes": "photograph", "image": '"PHOTO.jpg"', "argument": "PHOTO.jpg"}
    if config.model.encoder is None:
        boxes = ', "boxes": boxes' if config.model.captioner == "ObjectRelationTransformer" else ""
        of_image = '{"features": features' + boxes + "}"
        takes = {"takes": "features of image regions", "image": of_image, "argument": "ID --features FOLDER"}
    return _CARD.format(
        metadata=metadata.to_yaml(),
        name=name,
        **takes,
        install=_install(),
        kind=_kind(description, config),
        megabytes=size / 1e6,
        scores=_scores(scores, evaluation, description["beam"]),
        confidence=_confidence(description),
        data=f"{data}. {_TERMS[config.data.kind]}",
        licence=licence,
        encoder=_encoder_licence(config),
    )


def _install() -> str:
    """The command that installs the package, without paths of this machine, which are of no use to others."""
    command = pip_install("export,huggingface")
    is_local = "/" in command and "://" not in command
    return 'pip install "PATH/TO/A/CLONE/OF/tfsparsecap[export,huggingface]"' if is_local else command


def _kind(description: dict[str, Any], config: Config) -> str:
    encoder, pruning = config.model.encoder, config.pruning
    reads = f"behind the encoder {encoder.network}" if encoder is not None else "on features of image regions"
    if pruning is None:
        return f"{description['model']}, {reads}"
    height, width = pruning.block_shape
    blocks = f" in blocks of {height} x {width}" if height * width > 1 else ""
    share = f"{100 * description['sparsity']:.4g} %"
    return (
        f"{description['model']}, {reads}; {share} of its decoder's weights are zeros{blocks}, by the method"
        f" {pruning.method}"
    )


def _scores(scores: dict[str, float], evaluation: dict[str, Any], beam: int) -> str:
    if not scores:
        return "The run was not evaluated."
    images = (
        f"{evaluation['images']} images of the test split" if "images" in evaluation else "the test split"
    )
    return (
        "| score | |\n| --- | --- |\n"
        + "".join(f"| {title} | {value:.3f} |\n" for title, value in scores.items())
        + f"\nOf the trained model, with beam {evaluation.get('beam', beam)}, on {images}, before weights"
        f" were rounded; the file has beam {beam}."
    )


def _confidence(description: dict[str, Any]) -> str:
    confidence = description.get("confidence")
    if not confidence:
        return "The file has no confidence."
    return f"The confidence of a caption was calibrated on {confidence['images']} validation images."


def _encoder_licence(config: Config) -> str:
    encoder = config.model.encoder
    if encoder is None:
        return "none, it has no encoder"
    if encoder.weights is None:
        return "none, it started from random weights"
    entry = entry_of(encoder.network)
    return f"{entry.licence} ({encoder.network})" if entry else f"see {encoder.network}"
