"""`generate`: captions of images, with one interface for finished runs and exported files."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from tfsparsecap.captioning.data.images import read_image, resize_image
from tfsparsecap.captioning.data.records import REMEDY, images_in
from tfsparsecap.captioning.data.region_features import RegionFeatures, check_finite
from tfsparsecap.captioning.inference.confidence import NOT_SURE
from tfsparsecap.errors import InputError, check_whole

#: The inputs of one image: name -> array without a batch axis.
Inputs = dict[str, np.ndarray]


class Caption(NamedTuple):
    """A caption. `str` gives the text.

    Attributes:
        text: its words.
        score: the sum of the log-probabilities of its tokens.
        faults: what its text does not show, see `metrics.caption_statistics.token_faults`.
        confidence: calibrated probability that it is good, 0 to 1, see `confidence`; None if unknown.
    """

    text: str
    score: float
    faults: tuple[str, ...] = ()
    confidence: float | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Caption({self.text!r}, {self.score:.3f})"


class Captions(list[Caption]):
    """The captions of one image, best first. `print` shows one per line, with its score.

    Attributes:
        image: the path or the id of the image; empty for an image in memory.
        error: why the image cannot be captioned; None if it is.
        objects: the objects that are probably in the image, with their probabilities, likeliest first, see
            `confidence.likely_objects`; empty if the captioner predicts none.

    Examples:
        >>> print(Captions([Caption("a dog runs", -2.5), Caption("a dog", -3.0)])[0])
        a dog runs
    """

    def __init__(
        self,
        captions: Iterable[Caption] = (),
        image: str = "",
        error: InputError | None = None,
        objects: tuple[tuple[str, float], ...] = (),
    ) -> None:
        super().__init__(captions)
        self.image, self.error, self.objects = image, error, objects

    def summary(self) -> str:
        """The best caption and its confidence; if that is low, the objects that are probably in the image.

        Examples:
            >>> Captions([Caption("a cat on a bed", -4.0, (), 0.8)]).summary()
            'a cat on a bed (80%)'
            >>> Captions([Caption("a cat on a bed", -9.0, (), 0.3)], objects=(("cat", 0.9),)).summary()
            'Perhaps: cat'
        """
        best = self[0]
        if best.confidence is None:
            return best.text
        unsure = best.confidence < NOT_SURE
        if unsure and self.objects:
            return f"Perhaps: {', '.join(name for name, _ in self.objects)}"
        return f"{best.text} ({'not sure, ' * unsure}{best.confidence:.0%})"

    def __str__(self) -> str:
        return "\n".join(f"{caption.score:8.3f}  {caption.text}" for caption in self)


class CaptionGenerator(ABC):
    """What finished runs and exported files share.

    Attributes:
        label: names the captioner in messages.
        image_size: side of the square images in pixels, or None if the captioner takes region features.
        input_names: names of the inputs.
        feature_size: length of a region feature, or None if the captioner takes images.
        max_regions: regions per image; further ones are ignored.
        batch_size: images that are captioned together.
    """

    label: str
    image_size: int | None
    input_names: tuple[str, ...]
    feature_size: int | None
    max_regions: int
    batch_size: int = 1

    @abstractmethod
    def search(
        self, beam: int | None = None, samples: int | None = None, **sampling: Any
    ) -> Callable[[Sequence[Inputs]], list[Captions]]:
        """A function from the inputs of a batch of images to their captions, best first.

        Args:
            beam: as of `generate`; None takes the captioner's own setting.
            samples: as of `generate`.
            sampling: `temperature`, `top_k`, `top_p` and `seed`, as of `generate`.

        Raises:
            InputError: the captioner does not support an option, or its value is out of range.
        """

    def change_search(self, **options: Any) -> None:
        """Changes the search for complete sentences.

        Args:
            options: `plain`, `no_repeat_ngram` and `length_penalty`, as in the section `decoding` of a run's
                settings.

        Raises:
            InputError: there are options, and the search cannot be changed.
        """
        if options:
            names = " and ".join(name.replace("_", "-") for name in options)
            raise InputError(
                f"{self.label} has a fixed search: leave out the option {names}, or export it again"
            )

    def generate(
        self,
        images: Any,
        *,
        beam: int | None = None,
        samples: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        features: str | os.PathLike[str] | None = None,
    ) -> Captions | list[Captions]:
        """Captions images of any size; each is resized exactly as in training.

        Args:
            images: one image or several. One image is a path, a PIL image or an array, uint8 [H, W, 3], RGB.
                Several are a list of these, a folder of image files or a batch, uint8 [N, H, W, 3]. For a
                captioner of region features, an image is a dictionary `{"features": float [R, D]}`, with
                `"boxes"` float [R, 4] (x_min, y_min, x_max, y_max from 0 to 1) or `"pooled"` float [D] if
                the captioner takes them, or an id if `features` is given.
            beam: width of the beam search, which is the number of captions per image. None takes the run's
                own. A `.tflite` file has a fixed beam.
            samples: sample so many captions instead of searching for the best. Runs only.
            temperature: of the sampling, above 0; below 1 makes likely words likelier. None is 1.
            top_k: sample from the `top_k` most likely words.
            top_p: sample from the most likely words whose probabilities add up to `top_p`.
            seed: of the sampling; the same seed gives the same captions.
            features: folder of region features (`FOLDER/cocobu_att/ID.npy`); `images` are then ids.

        Returns:
            The captions of one image, or a list of them for several. A folder's images are sorted by name.

        Raises:
            InputError: an image cannot be read, or an option is out of range or not supported.

        Examples:
            >>> captioner = load("runs/quickstart")  # doctest: +SKIP
            >>> print(captioner.generate("photo.jpg", beam=3))  # doctest: +SKIP
              -1.402  a small red circle above a large blue star
              -2.310  a small red circle above a blue star
              -2.518  a red circle above a large blue star
            >>> [str(captions[0]) for captions in captioner.generate("photos/")]  # doctest: +SKIP
            ['a red square left of a star', 'a green triangle']
        """
        is_single = self._is_single(images, features is not None)
        results = []
        for captions in self.stream(
            [images] if is_single else images,
            beam=beam,
            samples=samples,
            features=features,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        ):
            if captions.error is not None:
                raise captions.error
            results.append(captions)
        return results[0] if is_single else results

    def stream(
        self,
        images: Iterable[Any],
        *,
        beam: int | None = None,
        samples: int | None = None,
        features: str | os.PathLike[str] | None = None,
        **sampling: Any,
    ) -> Iterator[Captions]:
        """`generate` for several images, which yields captions as soon as a batch is done.

        An image that cannot be read does not stop it: its `Captions` are empty and have an `error`.

        Args:
            images: an iterable of images, as of `generate`.
            beam: as of `generate`.
            samples: as of `generate`.
            features: as of `generate`.
            sampling: `temperature`, `top_k`, `top_p` and `seed`, as of `generate`.
        """
        sampling = {name: value for name, value in sampling.items() if value is not None}
        check_search(beam, samples, **sampling)
        search = self.search(beam, samples, **sampling)
        rows = self._read(images) if features is None else self._read_features(images, Path(features))
        while batch := list(islice(rows, self.batch_size)):
            readable = [inputs for _, inputs in batch if not isinstance(inputs, InputError)]
            results = iter(search(readable) if readable else [])
            for name, inputs_or_error in batch:
                if isinstance(inputs_or_error, InputError):
                    yield Captions(image=name, error=inputs_or_error)
                else:
                    captions = next(results)
                    captions.image = name
                    yield captions

    def _is_single(self, images: Any, ids: bool) -> bool:
        """Whether `images` is one image and not several."""
        if isinstance(images, str | os.PathLike):
            return ids or not os.path.isdir(images)
        if hasattr(images, "ndim"):
            return bool(images.ndim <= (3 if self.feature_size is None else 2))
        return isinstance(images, Mapping) or not isinstance(images, Iterable)

    def _read(self, images: Iterable[Any]) -> Iterator[tuple[str, Inputs | InputError]]:
        """Name and inputs of each image, or why it cannot be read; folders stand for the images in them."""
        for image in [images] if isinstance(images, str | os.PathLike) else images:
            files: list[Any] = [image]
            if isinstance(image, str | os.PathLike) and os.path.isdir(image):
                files = images_in(Path(image))
                if not files:
                    below = next((str(path) for path in sorted(Path(image).iterdir()) if path.is_dir()), None)
                    hint = f"; its folders are not searched: give them, such as {below}" if below else ""
                    yield str(image), InputError(f"there are no images in the folder {image}{hint}")
            for file in files:
                name = str(file) if isinstance(file, str | os.PathLike) else ""
                try:
                    size = self.image_size
                    yield name, self._regions(file) if size is None else self._pixels(file, size)
                except InputError as error:
                    yield name, error

    def _pixels(self, image: Any, size: int) -> Inputs:
        """The input of a captioner of images."""
        if isinstance(image, str | os.PathLike):
            return {"image": read_image(image, size)}
        if not isinstance(image, Image.Image):
            pixels = _array(image)
            if pixels is None or pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
                raise InputError(
                    f"{self.label} takes images, not {_described(image)}: give a path, a PIL image or an"
                    " array uint8 [H, W, 3]"
                )
            image = Image.fromarray(pixels)
        try:
            return {"image": resize_image(image, size)}
        except (OSError, ValueError) as error:
            raise InputError(f"an image cannot be read ({error}): give another one") from error

    def _regions(self, image: Any) -> Inputs:
        """The inputs of a captioner of region features."""
        inputs = image if isinstance(image, Mapping) else {"features": image}
        features, size = _array(inputs.get("features")), self.feature_size
        regions = len(features) if features is not None and features.ndim else 0
        shapes = {"features": (regions, size), "boxes": (regions, 4), "pooled": (size,)}
        names = [name for name in shapes if name in inputs and name in self.input_names]
        arrays = {name: array for name in names if (array := _array(inputs[name])) is not None}
        if not regions or any(
            name not in arrays or arrays[name].dtype.kind not in "fiu" or arrays[name].shape != shapes[name]
            for name in names
        ):
            raise InputError(
                f"{self.label} takes region features, float [regions, {size}], not {_described(image)}: give"
                " the folder of the features (features) and ids, or arrays, with boxes, float [regions, 4],"
                " if it takes them"
            )
        for name, array in arrays.items():
            with np.errstate(over="ignore"):
                rows = array[: self.max_regions if name in _PER_REGION else None].astype(np.float32)
            check_finite(rows, f"the array {name!r}")
            arrays[name] = rows
        return arrays

    def _read_features(self, ids: Iterable[str], folder: Path) -> Iterator[tuple[str, Inputs | InputError]]:
        """Name and inputs of each image from files of region features, or why they cannot be used.

        Raises:
            InputError: the captioner takes images, or there is no such folder.
        """
        if self.feature_size is None:
            raise InputError(f"{self.label} takes images, not region features: leave out the features")
        if folder.name == "cocobu_att" and folder.is_dir():
            folder = folder.parent
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}: give the folder that contains cocobu_att/")
        names = [str(name) for name in ids]
        ids = [_feature_id(name, folder / "cocobu_att") for name in names]
        features_of = partial(
            RegionFeatures,
            folder,
            feature_size=self.feature_size,
            max_regions=self.max_regions,
            need_boxes="boxes" in self.input_names,
            need_pooled="pooled" in self.input_names and (folder / "cocobu_fc").is_dir(),
        )
        index = None
        with suppress(InputError):  # if no image has features, each gets its own reason below
            index = features_of(ids)
        for number, name in enumerate(names):
            try:
                if index is not None and index.usable[number]:
                    row = index.one(number)
                else:
                    row = features_of([ids[number]], on_bad_record="fail").one(0)
                yield name, {key: row[key] for key in self.input_names if key in row}
            except InputError as error:
                yield name, InputError(str(error).removesuffix(REMEDY))


# Inputs with a row for each region.
_PER_REGION = ("features", "boxes")


def stacked_inputs(rows: Sequence[Inputs]) -> Inputs:
    """One batch of the inputs of several images; regions are padded with zeros, and `mask` tells which.

    Raises:
        InputError: the images have different inputs.
    """
    if any(row.keys() != rows[0].keys() for row in rows):
        raise InputError("the images have different inputs: give features, boxes and pooled for all or none")
    if "features" not in rows[0]:
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    lengths = np.array([len(row["features"]) for row in rows])
    batch = {"mask": np.arange(lengths.max()) < lengths[:, None]} if len(set(lengths)) > 1 else {}
    for name in rows[0]:
        arrays = [row[name] for row in rows]
        if name in _PER_REGION:
            arrays = [np.pad(array, ((0, lengths.max() - len(array)), (0, 0))) for array in arrays]
        batch[name] = np.stack(arrays)
    return batch


def check_search(beam: int | None, samples: int | None, **sampling: Any) -> None:
    """Checks the options of `generate` that do not depend on the captioner.

    Raises:
        InputError: beam search and sampling are both asked for, or neither allows an option.
    """
    if beam is not None:
        check_whole("beam", beam, at_least=1)
    if beam is not None and samples is not None:
        raise InputError("beam search and sampling exclude each other: give either beam or samples")
    for name, value in sampling.items():
        if value is not None and samples is None:
            raise InputError(f"{name} is an option of sampling: give the number of samples, too")


def _array(value: Any) -> np.ndarray | None:
    return np.asarray(value) if hasattr(value, "__array__") else None


def _feature_id(name: str, folder: Path) -> str:
    """The id of an image, given itself or as the path of its file of features in `folder`."""
    path = Path(name)
    if path.suffix in (".npy", ".npz"):
        with suppress(ValueError):
            path = path.resolve().relative_to(folder.resolve())
        return path.with_suffix("").as_posix()
    return name


def _described(image: Any) -> str:
    if isinstance(image, Mapping):
        return " and ".join(f"{name}: {_described(value)}" for name, value in image.items()) or "nothing"
    array = _array(image)
    return f"an array {array.dtype} {list(array.shape)}" if array is not None else repr(image)[:200]
