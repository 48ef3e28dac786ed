"""How trainings start: the objects of runs that continue, and of runs that start from others."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.settings.build import load_data
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training.other_runs import objects_of_run
from tfsparsecap.errors import InputError

from .training_runs import arrays, assert_same_arrays, history, resume_last_epoch, train


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
        "training.batch_size=8",
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
    settings = settings_of(tiny_settings, "second", start, *data, "training.epochs=1")
    second, _, _ = train(tmp_path / "runs", settings)
    assert FinishedRun.load(second.path).captioner.objects == ("cat", "dog", "sofa")

    # Without labels the objects stay, also after resuming, and are not trained.
    settings = settings_of(tiny_settings, "unlabelled", start, *photos("unlabelled", [None]))
    settings += ["training.weight_decay=0"]
    unlabelled, _, _ = train(tmp_path / "runs", settings)
    resume_last_epoch(unlabelled, settings)
    unlabelled_captioner = FinishedRun.load(unlabelled.path).captioner
    assert unlabelled_captioner.objects == ("cat", "dog", "sofa")
    np.testing.assert_array_equal(unlabelled_captioner.object_scores.kernel, captioner.object_scores.kernel)


def test_a_run_continues_with_some_of_the_objects_of_its_start_and_no_others():
    config = load_config(None, ["training.start_from=runs/first"])
    messages, start = [], SimpleNamespace(captioner=SimpleNamespace(objects=("cat", "dog", "sofa")))

    def objects(*labels):
        data = CaptionData("other", [Record("a", Path("a"), ("a dog",), "train", labels)])
        return objects_of_run(config, data, start, None, messages.append)

    assert objects("dog", "cat") == ("cat", "dog", "sofa")
    assert "no photograph of other has one of the labels sofa, which" in messages[0]
    message = r"predicts 3 objects, without some of the 2 that are labelled in other \(bus\): give data"
    with pytest.raises(InputError, match=message):
        objects("bus", "cat")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_without_object_weight_no_head_is_trained(tiny_settings, tmp_path, photos):
    data = photos("photos", [["cat"], ["dog"]])
    settings = settings_of(tiny_settings, "plain", "training.object_weight=0", "training.epochs=1", *data)
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


FROZEN = ["model.encoder.trainable=false", "pruning=null"]
FROZEN += ["training.batch_size=50", "training.validation_images=0"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_run_learns_from_teachers_with_other_sizes_and_is_resumed_with_their_weights_only(
    tiny_settings, tmp_path
):
    settings = [*tiny_settings, *FROZEN, f"data.cache_folder={tmp_path / 'cache'}", "data.cached_views=2"]
    teacher, _, _ = train(
        tmp_path / "old", [*settings, "name=teacher", "model.rnn_size=24", "training.epochs=1"]
    )
    settings.append("training.schedule=constant")
    folder, _, _ = train(tmp_path, [*settings, "name=taught", f"training.teacher={teacher.path}"])
    untaught, _, _ = train(tmp_path, [*settings, "name=alone", "training.epochs=1"])
    assert history(folder)[0]["loss"] != history(untaught)[0]["loss"]
    weights = arrays(folder.checkpoint_files()[-1])
    assert all(np.isfinite(array).all() for array in weights.values() if array.dtype.kind == "f")
    (entry,) = json.loads(folder.teachers.read_text(encoding="utf-8"))
    assert entry["run"] == "teacher" and len(entry["weights_sha256"]) == 64

    # The same weights in another place and another file.
    captioner = FinishedRun.load(teacher.path).captioner
    place = teacher.path.rename(tmp_path / "teacher")
    captioner.save(place / "model.keras")
    resume_last_epoch(folder, load_config(None, [*settings, "name=taught", f"training.teacher={place}"]))

    bias = captioner.output_layer.bias
    bias.assign(bias + 0.01)
    captioner.save(place / "model.keras")
    folder.checkpoint_files()[-1].unlink()
    folder.model.unlink()
    message = (
        r"training\.teacher: the weights of the run in .*teacher have changed since .*taught began to"
        r" learn from it: put the old teacher back, or train under another name=$"
    )
    with pytest.raises(InputError, match=message):
        train(tmp_path, folder.load_config(), resume=True)
    folder.teachers.write_text("[1]", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"teachers\.json does not describe the teachers of this run: copy it"
    ):
        train(tmp_path, folder.load_config(), resume=True)
    folder.teachers.unlink()  # as in runs of older versions
    train(tmp_path, folder.load_config(), resume=True)
    assert folder.model.is_file() and json.loads(folder.teachers.read_text(encoding="utf-8")) != [entry]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_captions_of_teachers_are_learned_instead_of_the_references(tiny_settings, tmp_path):
    settings = [*tiny_settings, *FROZEN, f"data.cache_folder={tmp_path / 'cache'}"]
    teacher, _, _ = train(tmp_path, [*settings, "name=teacher", "training.epochs=1"])
    taught = [*settings, f"training.teacher={teacher.path}", f"training.start_from={teacher.path}"]
    taught += ["training.teacher_captions=2", "training.batch_size=25"]
    folder, _, _ = train(tmp_path, taught)

    captions = json.loads(folder.teacher_captions.read_text(encoding="utf-8"))
    records = load_data(folder.load_config()).split("train")
    images = [str(record.image) for record in records]
    results = FinishedRun.load(teacher.path).generate(images, beam=5)
    expected = [[str(caption) for caption in best[:2] if str(caption)] for best in results]
    assert [captions.get(record.image_id, []) for record in records] == expected
    assert captions

    # The same training with a table in which they are references.
    table = tmp_path / "data"
    shutil.copytree(folder.load_config().data.folder, table)
    with (table / "captions.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row[2] != "train" or row[0] not in captions]
    with (table / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
        for image_id, texts in captions.items():
            csv.writer(file).writerows([image_id, text, "train"] for text in texts)
    of_scenes = ("data.train", "data.validation", "data.test", "data.image_size", "data.folder")
    others = [setting for setting in taught if not setting.startswith(of_scenes)]
    more = ["name=table", "data.kind=table", f"data.folder={table}", "training.teacher_captions=0"]
    by_hand, _, _ = train(tmp_path, [*others, *more])
    assert_same_arrays(arrays(by_hand.checkpoint_files()[-1]), arrays(folder.checkpoint_files()[-1]))

    resume_last_epoch(folder, folder.load_config())
    folder.teacher_captions.write_text('{"a.jpg": "a dog"}', encoding="utf-8")
    with pytest.raises(
        InputError, match=r"teacher_captions\.json does not contain captions of images: delete it"
    ):
        train(tmp_path, folder.load_config(), resume=True)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_teacher_that_does_not_fit_is_rejected(tiny_settings, tiny_run, tmp_path):
    for wrong, message in (
        (
            "data.max_length=9",
            r"training\.teacher: .* has data\.max_length=\d+, this one 9: set the same value",
        ),
        ("data.vocabulary_size=10", r"training\.teacher: .* has another vocabulary"),
        (
            ["training.teacher=[]", "training.teacher_captions=3"],
            r"training\.teacher_captions is 3, but there is no teacher",
        ),
        (f"training.teacher={tmp_path / 'absent'}", r"training\.teacher: .*absent"),
    ):
        with pytest.raises(InputError, match=message):
            wrong = wrong if isinstance(wrong, list) else [wrong]
            train(tmp_path, [*tiny_settings, f"training.teacher={tiny_run}", *wrong])
    assert not list(tmp_path.iterdir())
