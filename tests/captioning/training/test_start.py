"""How trainings start: the objects of runs that continue, and of runs that start from others."""

import json

import numpy as np
import pytest

from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.errors import InputError

from .training_runs import arrays, resume_last_epoch, train


@pytest.fixture
def photos(tmp_path):
    """A function that writes a table of noise images with labels, and returns the settings of its folder."""
    from PIL import Image

    def write(name, labels):
        folder, rows, random = tmp_path / name, [], np.random.default_rng(0)
        folder.mkdir()
        for number in range(12):
            Image.fromarray(random.integers(0, 255, (32, 32, 3), np.uint8)).save(folder / f"{number}.png")
            row = {
                "image": f"{number}.png",
                "caption": f"a {('cat', 'dog')[number % 2]} sits",
                "labels": labels,
            }
            row["split"] = ("train", "train", "train", "train", "validation", "test")[number // 2]
            rows.append({**row, "labels": labels[number % len(labels)]})
        (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return [f"data.folder={folder}"]

    return write


def settings_of(tiny_settings, name, *more):
    scenes = ("data.folder", "data.train", "data.validation", "data.test", "data.image_size")
    shared = [setting for setting in tiny_settings if not setting.startswith(scenes)]
    return [
        *shared,
        f"name={name}",
        "data.kind=table",
        "pruning=null",
        "training.batch_size=4",
        "data.max_length=4",
        "training.validation_images=0",
        *more,
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_labels_train_the_head_and_runs_continue_with_its_objects(tiny_settings, tmp_path, photos):
    data = photos("photos", [["cat", "sofa"], ["dog"], None])
    settings = settings_of(tiny_settings, "first", *data)
    first, scores, _ = train(tmp_path / "runs", settings)
    captioner = FinishedRun.load(first.path).captioner
    assert captioner.objects == ("cat", "dog", "sofa")
    assert not np.allclose(captioner.object_scores.bias, -7, atol=1e-3)
    assert scores["object_images"] == 1 and 0 <= scores["objects_recall"] <= 1
    resume_last_epoch(first, settings)

    start = f"training.start_from={first.path}"
    settings = settings_of(tiny_settings, "second", start, *data)
    second, _, _ = train(tmp_path / "runs", settings)
    assert FinishedRun.load(second.path).captioner.objects == ("cat", "dog", "sofa")
    resume_last_epoch(second, settings)

    # Without labels the objects stay, also after resuming, and are not trained.
    settings = settings_of(tiny_settings, "unlabelled", start, *photos("unlabelled", [None]))
    settings += ["training.weight_decay=0"]
    unlabelled, _, _ = train(tmp_path / "runs", settings)
    resume_last_epoch(unlabelled, settings)
    found = FinishedRun.load(unlabelled.path).captioner
    assert found.objects == ("cat", "dog", "sofa")
    np.testing.assert_array_equal(found.object_scores.kernel, captioner.object_scores.kernel)

    other = photos("other", [["cat", "bus"], ["dog"]])
    message = (
        r"predicts 3 objects, but 3 are labelled in other \(only one of the two has bus, sofa\): give data"
    )
    with pytest.raises(InputError, match=message):
        train(tmp_path / "runs", settings_of(tiny_settings, "other", start, *other))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_without_object_weight_no_head_is_trained(tiny_settings, tmp_path, photos):
    data = photos("photos", [["cat"], ["dog"]])
    settings = settings_of(tiny_settings, "plain", "training.object_weight=0", *data)
    plain, scores, _ = train(tmp_path / "runs", settings)
    assert FinishedRun.load(plain.path).captioner.objects == ()
    assert "object_recall" in scores and "objects_recall" not in scores
    assert not any("object_" in name for name in arrays(plain.checkpoint_files()[-1]))
    start = f"training.start_from={plain.path}"
    later = settings_of(tiny_settings, "later", start, *data)
    folder, _, messages = train(tmp_path / "runs", later)
    assert any("predicts no objects: the labels of" in message for message in messages)
    assert FinishedRun.load(folder.path).captioner.objects == ()
    resume_last_epoch(folder, later)
    assert load_config(folder.config_file).training.object_weight == 0.2
