"""Run folders: starting and resuming, locks, which checkpoints are kept, the best epoch."""

import csv

import numpy as np
import pytest

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.runs.run_folder import RunFolder, best_epoch
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.errors import InputError


def tokenizer():
    return WordTokenizer.from_captions(["a dog"])


def test_an_existing_folder_is_not_overwritten(tmp_path):
    folder, config = RunFolder(tmp_path / "quickstart"), load_config()
    folder.check(config, resume=False)
    folder.path.mkdir()
    folder.check(config, resume=False)
    (folder.path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"exists but is not a run folder .* pass name="):
        folder.check(config, resume=False)
    (folder.path / "notes.txt").unlink()
    folder.create(config, tokenizer())
    with pytest.raises(InputError, match=r"exists: pass --resume .* or name="):
        folder.check(config, resume=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="exists"):
        RunFolder(tmp_path / "file").check(config, resume=False)


def test_a_run_is_resumed_with_the_same_settings_only(tmp_path):
    folder, config = RunFolder(tmp_path / "quickstart"), load_config()
    with pytest.raises(InputError, match="there is no run to resume"):
        folder.check(config, resume=True)
    folder.create(config, tokenizer())
    folder.check(config, resume=True)
    folder.check(load_config(None, ["data.folder=elsewhere"]), resume=True)
    with pytest.raises(InputError, match=r"has training\.epochs=2, not 7: resume it with its own settings"):
        folder.check(load_config(None, ["training.epochs=7"]), resume=True)
    # Which epoch is the best, and how much is pruned by a validation score, depends on the images.
    with pytest.raises(InputError, match=r"has training\.validation_images=200, not 2"):
        folder.check(load_config(None, ["training.validation_images=2"]), resume=True)
    with pytest.raises(InputError, match="more settings differ"):
        folder.check(load_config(None, ["pruning=null"]), resume=True)


def test_leftovers_of_a_killed_start_may_be_overwritten(tmp_path):
    folder, config = RunFolder(tmp_path / "run"), load_config()
    folder.create(config, tokenizer(), {"0000/kernel": np.ones(3, np.float32)})
    assert folder.initial.is_file()
    folder.config_file.unlink()  # the last thing that is written
    (folder.checkpoints / ".initial-x.npz").write_bytes(b"half")
    folder.check(config, resume=False)
    with pytest.raises(InputError, match="omit --resume"):
        folder.check(config, resume=True)
    folder.checkpoint(1).write_bytes(b"an epoch")
    with pytest.raises(InputError, match="exists but is not a run folder"):
        folder.check(config, resume=False)


@pytest.mark.parametrize(
    ("setting", "before", "now", "other"),
    [
        ("training.start_from", "runs/study/dense-s1", "/moved/study/dense-s1", "runs/other"),
        ("training.teacher", "[runs/a,runs/b]", "[/moved/a,/moved/b]", "[runs/b,runs/a]"),
        ("model.encoder.weights", "tiny.safetensors", "/moved/tiny.safetensors", "/moved/large.safetensors"),
        ("model.encoder.slimmed", "runs/a/encoder.keras", "/moved/a/encoder.keras", "runs/b/encoder.keras"),
    ],
)
def test_moved_files_are_accepted(setting, before, now, other, tmp_path):
    def config(value):
        return load_config(None, ["model.encoder.network=tiny_vit_5m", f"{setting}={value}"])

    folder = RunFolder(tmp_path / "run")
    folder.create(config(before), tokenizer())
    folder.check(config(now), resume=True)
    with pytest.raises(InputError, match=f"has {setting}="):
        folder.check(config(other), resume=True)


def test_a_lock_creates_the_folder_and_removes_it_if_nothing_was_written(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "new")
    with folder.locked():
        assert (folder.path / ".lock").is_file()
        with pytest.raises(InputError, match="another process is training in"), folder.locked():
            pass
        assert folder.path.is_dir()
    assert not list(tmp_path.iterdir())
    with folder.locked():
        folder.create(load_config(), tokenizer())
    assert folder.config_file.is_file() and not (folder.path / ".lock").exists()


def test_settings_and_vocabulary_can_be_read_back(tmp_path):
    folder, config = RunFolder(tmp_path / "a" / "b"), load_config(None, ["seed=4"])
    folder.create(config, tokenizer())
    assert folder.load_config() == config
    assert WordTokenizer.load(folder.vocabulary).vocabulary == tokenizer().vocabulary
    with pytest.raises(InputError, match="is not a run folder"):
        RunFolder(tmp_path).load_config()


def test_a_failed_start_leaves_no_folder_behind(tmp_path, monkeypatch):
    def full(self, path):
        raise InputError("the disk is full")

    monkeypatch.setattr(WordTokenizer, "save", full)
    with pytest.raises(InputError, match="the disk is full"):
        RunFolder(tmp_path / "run").create(load_config(), tokenizer())
    assert not list(tmp_path.iterdir())


def test_the_run_of_another_process_is_neither_replaced_nor_deleted(tmp_path):
    folder, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    folder.create(load_config(None, ["seed=4"]), tokenizer())
    with pytest.raises(InputError, match="run exists: choose a new folder"):
        other.create(load_config(), tokenizer())
    assert folder.load_config().seed == 4


def test_the_last_two_checkpoints_and_the_best_are_kept(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create(load_config(), tokenizer())
    for epoch in range(1, 7):
        folder.checkpoint(epoch).write_bytes(b"")
    folder.drop_old_checkpoints(5, best=2)
    names = sorted(path.name for path in folder.checkpoints.iterdir())
    assert names == ["epoch-0002.npz", "epoch-0004.npz", "epoch-0005.npz"]


def test_history_has_a_row_per_epoch_and_a_column_per_name(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_history(
        [{"epoch": 1, "loss": 0.123456789}, {"epoch": 2, "loss": 0.1, "validation_CIDEr": 0.5}]
    )
    with folder.history.open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"epoch": "1", "loss": "0.123457", "validation_CIDEr": ""}
    assert rows[1]["validation_CIDEr"] == "0.5"


def test_only_epochs_at_the_final_sparsity_can_be_the_best():
    history = [
        {"epoch": 1, "validation_CIDEr": 0.9, "sparsity": 0.3},
        {"epoch": 2, "validation_CIDEr": 0.4, "sparsity": 0.9},
        {"epoch": 3, "validation_CIDEr": 0.5, "sparsity": 0.9001},
        {"epoch": 4, "sparsity": 0.9},
    ]
    assert best_epoch(history, None) == 1
    assert best_epoch(history, 0.9) == 3
    assert best_epoch(history[:1], 0.9) is None
    assert best_epoch([], None) is None
    equal = [{"epoch": epoch, "validation_CIDEr": 0.5} for epoch in (1, 2)]
    assert best_epoch(equal, None) == 2


def test_a_run_is_resumed_with_its_data_only(tmp_path):
    def data(caption, **options):
        records = [Record("a.jpg", tmp_path / "a.jpg", (caption,), "train")]
        return CaptionData("mine", records, **options)

    folder, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "other")
    folder.create(load_config(), tokenizer(), data=data("a dog"))
    folder.check_data(data("a dog"))
    with pytest.raises(
        InputError, match=r"the data of the run in .* has changed since it began .*restore it"
    ):
        folder.check_data(data("a cat"))
    assert folder.has_data(data("a cat")) is False
    (tmp_path / "a.jpg").write_bytes(b"an image")
    assert folder.has_data(data("a dog")) is False
    folder.check_data(data("a dog", reads_images=False))
    assert folder.has_data(data("a dog", reads_images=False))
    folder.data.write_text("[]")
    with pytest.raises(InputError, match=r"data\.json is damaged: delete it"):
        folder.check_data(data("a dog"))
    other.create(load_config(), tokenizer())
    assert other.has_data(data("a dog")) is None


def test_load_tokenizer_reads_words_digits_or_pieces(tmp_path):
    folder, saved = RunFolder(tmp_path), WordTokenizer.from_captions(["a dog", "a red dog"])
    with pytest.raises(InputError, match=r"vocabulary.txt: No such file"):
        folder.load_tokenizer()
    saved.save_to(tmp_path)
    loaded = folder.load_tokenizer()
    assert isinstance(loaded, WordTokenizer) and loaded.vocabulary == saved.vocabulary
    digits = folder.load_tokenizer(radix_base=2)
    assert isinstance(digits, RadixTokenizer) and digits.base == 2
    assert digits.words.vocabulary == saved.vocabulary
    # A SentencePiece model takes precedence, even a damaged one.
    (tmp_path / "sentencepiece.model").write_bytes(b"words")
    with pytest.raises(InputError, match=r"sentencepiece.model: it is not a SentencePiece model"):
        folder.load_tokenizer()
