"""Published tables are read as they are; damaged ones raise errors."""

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.studies.published_curves import published_file, read_layers, read_published

GOOD = "Sparsity\tNNZ\tBaseline\tProposed\n0.800\t2.4 M\t94.3\t94.4\n0.900\t1.2 M\t94.3\t\n"


@pytest.fixture(scope="module")
def curves(shared):
    return shared / "fixtures" / "published_curves"


def test_every_published_score_is_read(curves):
    files = sorted(curves.glob("performance__*.tsv"))
    assert len(files) >= 10
    for file in files:
        header, *lines = [line.split("\t") for line in file.read_text().splitlines()]
        expected = {}
        for line in lines:
            for name, cell in zip(header[2:], line[2:], strict=False):
                if cell:
                    expected.setdefault(name, []).append((float(line[0]), float(cell)))
        assert read_published(file) == expected


def test_scores_of_the_papers_figures(curves):
    lstm = read_published(curves / "performance__Pruning_Soft-Attention_LSTM_MS-COCO_CIDEr.tsv")
    assert lstm["Proposed"] == [(0.8, 94.4), (0.9, 93.1), (0.95, 92.1), (0.975, 88.5)]
    assert lstm["SNIP"][-1] == (0.975, 24.9) and lstm["Baseline"][0] == (0.8, 94.3)
    up_down = read_published(curves / "performance__Pruning_Up-Down_MS-COCO_CIDEr.tsv")
    assert up_down["Hard pruning (class-blind)"] == [(0.95, 0.0)]
    assert len(up_down["Proposed"]) == 4 and len(up_down["Gradual pruning"]) == 3


def test_every_published_layer_is_read(curves):
    for file in curves.glob("layerwise__*.tsv"):
        found = read_layers(file)
        header, *lines = [line.split("\t") for line in file.read_text().splitlines()]
        assert list(found) == header[1:]
        for column, method in enumerate(header[1:], start=1):
            expected = {line[0].removesuffix("/mask"): float(line[column]) for line in lines}
            assert found[method] == expected and len(expected) == len(lines)


@pytest.mark.parametrize(
    ("captioner", "score", "found"),
    [
        ("Soft-Attention LSTM", "CIDEr", "Pruning_Soft-Attention_LSTM_MS-COCO_CIDEr"),
        ("soft attention (GRU)", "BLEU-4", "Pruning_Soft-Attention_GRU_MS-COCO_BLEU-4"),
        ("Soft-Attention Inception-V1 GRU", "CIDEr", "Pruning_Soft-Attention_Inception-V1_GRU_MS-COCO_CIDEr"),
        ("Up-Down", "CIDEr", "Pruning_Up-Down_MS-COCO_CIDEr"),
        ("ORT", "BLEU-4", "Pruning_ORT_MS-COCO_BLEU-4"),
        ("Object Relation Transformer", "CIDEr", "Pruning_ORT_MS-COCO_CIDEr"),
        ("ACORT", "CIDEr", None),
        ("ORT", "SPICE", None),
        ("", "CIDEr", None),
        ("Soft-Attention", "CIDEr", None),
    ],
)
def test_tables_are_found_by_captioner_and_score(curves, captioner, score, found):
    file = published_file(curves, captioner, score)
    assert (file and file.stem) == (found and f"performance__{found}")


def test_a_file_is_the_table_and_a_missing_folder_has_none(tmp_path):
    (tmp_path / "a.tsv").write_text("")
    assert published_file(tmp_path / "a.tsv", "ORT", "CIDEr") == tmp_path / "a.tsv"
    assert published_file(tmp_path / "none", "ORT", "CIDEr") is None


def test_windows_line_endings_byte_order_mark_and_blank_lines_are_accepted(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode() + b"\r\n\t\t\r\n")
    expected = {"Baseline": [(0.8, 94.3), (0.9, 94.3)], "Proposed": [(0.8, 94.4)]}
    assert read_published(tmp_path / "a.tsv") == expected


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_published, "", "not enough values"),
        (read_published, "\nSparsity\tA\n", "first column is Sparsity"),
        (read_published, "Method\tA\n0.8\t1\n", "first column is Sparsity"),
        (read_published, "Sparsity\n0.8\n", "first column is Sparsity"),
        (read_published, "Sparsity\tA\tA\n0.8\t1\t2\n", "begins with"),
        (read_published, "Sparsity\tA\t\n0.8\t1\t2\n", "begins with"),
        (read_published, "Sparsity\tA\n\n\t\n", "has 0 rows"),
        (read_published, "Sparsity\tA\n0.8\t1\t2\n", "row '0.8' .* more cells"),
        (read_published, "Sparsity\tA\n0.8\t1\n0.9\tmany\n", "A is 'many'"),
        (read_published, "Sparsity\tA\n0.8\tnan\n", "A is 'nan'"),
        (read_published, "Sparsity\tA\n\t1\n", "Sparsity is ''"),
        (read_published, "Sparsity\tA\n80\t1\n", "Sparsity is '80'; write a number from 0 to 1"),
        (read_published, "Sparsity\tA\n0.8\t1\n0.8\t1\n", "row '0.8' is repeated"),
        (read_published, b"Sparsity\tA\n0.8\t\xff\xfe\n", "decode byte"),
        (read_published, b"Sparsity\tA\n" + b"0.8\t1\n" * 200_000, "larger than"),
        (read_layers, "Layer\tA\nx\t0.5\nx\t0.6\n", "row 'x' is repeated"),
        (read_layers, "Layer\tA\nx\t97.5\n", "A is '97.5'"),
    ],
)
def test_damaged_tables_are_reported(tmp_path, read, content, message):
    file = tmp_path / "a.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=f"a.tsv.*{message}") as raised:
        read(file)
    assert "\n" not in str(raised.value)


def test_missing_files_and_folders_are_reported(tmp_path):
    for path in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read_published(path)
