"""Captions in the browser, compared with Python's, and the captioners that are refused."""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest
from tfsparsecap_export.caption_files.export_captioner import make_bundle

from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner, read_bundle

from .conftest import MODULES_ONLY, PHOTOGRAPHS
from .photographs import everyday, varied
from .test_photo import FIXTURES

CAPTION = """async ([captioner, names]) => {
  const { loadCaptioner } = await import("/captioner.js");
  const loaded = await loadCaptioner(captioner);
  const found = [];
  for (const name of names) {
    const blob = await (await fetch(`/files/${name}`)).blob();
    found.push(await loaded.caption(new File([blob], name)));
  }
  loaded.close();
  return found;
}"""
LOAD = """async (names) => {
  const { loadCaptioner } = await import("/captioner.js");
  const found = [];
  for (const name of names) {
    try {
      const captioner = await loadCaptioner(`/files/${name}`);
      await captioner.captionPixels(new Uint8Array(3 * captioner.description.image_size ** 2));
      found.push(captioner.vocabulary);
      captioner.close();
    } catch (error) {
      found.push(`${error.name}: ${error.message}`);
    }
  }
  return found;
}"""


def compare(site, open_page, name: str, photographs: Sequence[Path], record_property) -> list[bool]:
    """Captions photographs, and says for each whether its caption is Python's; the scores must be close."""
    shutil.copy(captioner_path(name), site.files / "captioner.tflite")
    python = TFLiteCaptioner(captioner_path(name))
    for path in photographs:
        if path.parent != site.files:
            shutil.copy(path, site.files)
    results = open_page(*MODULES_ONLY).evaluate(
        CAPTION, ["/files/captioner.tflite", [path.name for path in photographs]]
    )
    equal, start = [], time.perf_counter()
    answers = [python.generate(path) for path in photographs]
    milliseconds = 1000 * (time.perf_counter() - start) / len(answers)
    for path, captions, expected in zip(photographs, results, answers, strict=True):
        best = captions["captions"][0]
        equal.append(best["text"] == expected[0].text)
        if equal[-1]:
            assert best["score"] == pytest.approx(expected[0].score, abs=0.5), path.name
        if name == "small":
            assert captions["summary"] == expected.summary(), path.name
            texts = [caption["text"] for caption in captions["captions"]]
            assert texts == [caption.text for caption in expected], path.name
            assert best["confidence"] == pytest.approx(expected[0].confidence, abs=0.005), path.name
            assert [entry["name"] for entry in captions["objects"]] == [name for name, _ in expected.objects]
    read, run = (mean(result["milliseconds"][part] for result in results) for part in ("photo", "run"))
    message = (
        f"MEASURED {name}: {sum(equal)} of {len(equal)} captions are Python's; {read:.0f} ms to read a"
        f" photograph and {run:.0f} ms to caption it, in Python {milliseconds:.0f} ms together"
    )
    record_property("message", message)
    return equal


@pytest.mark.slow
def test_captions_of_all_sizes_orientations_and_formats_are_those_of_python(
    site, open_page, tmp_path, record_property
):
    site.files = tmp_path
    assert all(compare(site, open_page, "small", varied(tmp_path), record_property))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("small", 0.95), ("good", 0.8)])
def test_captions_of_everyday_photographs_are_those_of_python(
    name, share, shared, site, open_page, tmp_path, record_property
):
    """Runtimes round what `good` multiplies differently, in Python with other kernels as well."""
    site.files = tmp_path
    equal = compare(site, open_page, name, [*everyday(shared, 25)], record_property)
    assert len(equal) == 50 and sum(equal) >= share * len(equal)


@pytest.mark.slow
def test_confidence_and_objects_are_those_of_python(site, open_page, tmp_path):
    site.files = tmp_path
    table = json.loads((FIXTURES / "objects.json").read_text(encoding="utf-8"))
    shutil.copy(FIXTURES / "objects.tflite", tmp_path)
    for name in table:
        drawn = FIXTURES / name
        shutil.copy(drawn if drawn.exists() else FIXTURES.parent / "demo" / name, tmp_path)
    results = open_page(*MODULES_ONLY).evaluate(CAPTION, ["/files/objects.tflite", list(table)])
    for expected, captions in zip(table.values(), results, strict=True):
        for expected_caption, caption in zip(expected["captions"], captions["captions"], strict=True):
            assert caption["text"] == expected_caption["text"]
            assert caption["score"] == pytest.approx(expected_caption["score"], rel=1e-4)
            assert caption["confidence"] == pytest.approx(expected_caption["confidence"], rel=1e-3)
        assert [entry["name"] for entry in captions["objects"]] == expected["objects"]
        assert captions["namesObjects"] == (expected["captions"][0]["confidence"] < 0.5)
    assert {result["namesObjects"] for result in results} == {True, False}


@pytest.mark.slow
def test_tokens_become_the_same_text_as_in_python(open_page):
    cases = json.loads((FIXTURES / "texts.json").read_text(encoding="utf-8"))
    few = len(cases[0]["vocabulary"])
    cases.append({**cases[0], "ids": [few], "text": f"gives token {few}, and has {few} tokens"})
    texts = open_page(*MODULES_ONLY).evaluate(
        """async (cases) => {
          const { captionsOf } = await import("/captions.js");
          return cases.map(({ ids, description, vocabulary }) => {
            const outputs = { token_ids: Int32Array.from(ids), scores: Float32Array.of(-1) };
            try {
              return captionsOf(outputs, description, vocabulary).captions[0].text;
            } catch (error) {
              return error.message;
            }
          });
        }""",
        cases,
    )
    for case, text in zip(cases, texts, strict=True):
        assert text == case["text"], case


def refused() -> dict[str, tuple[bytes, str]]:
    """Contents of files, and the beginning of the sentence that refuses each."""
    echo = (FIXTURES / "echo.tflite").read_bytes()
    description, words = read_bundle(FIXTURES / "echo.tflite")
    graph = echo[: echo.index(b"PK\3\4")]
    photograph = PHOTOGRAPHS[0].read_bytes()

    def described(**changes) -> bytes:
        return make_bundle(graph, description | changes, words)

    changed = bytearray(echo)
    changed[100] ^= 1
    what = "the captioner {}"
    return {
        "empty": (b"", f"{what} is not a .tflite file: give"),
        "photograph": (photograph, f"{what} is not a .tflite file: give"),
        "graph_alone": (graph, f"{what} has no readable captioner.json"),
        "cut_short": (echo[:-100], f"{what} has no readable captioner.json"),
        "changed": (bytes(changed), f"the graph of {what} was changed after its export, or is damaged: copy"),
        "newer": (described(format_version=2), f"{what} has a newer format than 1, the newest"),
        "no_version": (described(format_version="1"), f"the description in {what} has no format version"),
        "no_words": (make_bundle(graph, description, None), f"{what} has no vocabulary: export"),
        "features": (described(input="features"), f"{what} takes features that another program computes"),
        "no_special_ids": (described(special_ids={}), f"the description in {what} does not name the special"),
        "no_join": (described(join="letters"), f"the description in {what} does not say how to join"),
        "no_size": (described(image_size=0), f"the description in {what} gives no image size from 1 to"),
        "wrong_size": (
            described(image_size=5),
            f"{what} takes image uint8 [1, 4, 4, 3], not image uint8 [1, 5",
        ),
        "wrong_objects": (described(objects=[1]), f"the description in {what} does not give the objects"),
        "no_objects": (described(objects=["cat"]), f"{what} has no output objects: copy"),
        "confidence": (
            described(confidence={"slope": None}),
            f"the description in {what} has a damaged confidence",
        ),
        **{
            name: ((FIXTURES / f"{name}.tflite").read_bytes(), sentence)
            for name, sentence in {
                "silent": f"{what} has no output token_ids and scores: copy",
                "other_signature": f"{what} has no signature caption: copy",
                "future_operator": f"the runtime of this page cannot run {what}",
            }.items()
        },
    }


@pytest.mark.slow
def test_what_is_no_captioner_is_refused_in_one_sentence(site, open_page, tmp_path):
    site.files = tmp_path
    cases = {f"{name}.tflite": case for name, case in refused().items()}
    for name, (content, _) in cases.items():
        (tmp_path / name).write_bytes(content)
    cases["absent.tflite"] = (
        b"",
        "the captioner {} cannot be loaded (404 File not found): check its address",
    )
    page = open_page(*MODULES_ONLY)
    messages = page.evaluate(LOAD, list(cases))
    # A page without encryption has no digests.
    page.evaluate("Object.defineProperty(crypto, 'subtle', { value: undefined })")
    (tmp_path / "unchecked.tflite").write_bytes((FIXTURES / "echo.tflite").read_bytes())
    cases["unchecked.tflite"] = (
        b"",
        "this browser does not check the captioner {} on a page without encryption",
    )
    messages += page.evaluate(LOAD, ["unchecked.tflite"])
    for (name, (_, sentence)), text in zip(cases.items(), messages, strict=True):
        assert isinstance(text, str), name
        assert text.startswith(f"CaptionerError: {sentence.format(name)}"), text
        assert "\n" not in text and text[-1].isalnum(), text
