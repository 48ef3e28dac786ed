"""Beam search and sampling with rules for complete sentences, against a search written with Python lists."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from tfsparsecap_export.caption_files import caption_graph

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.tokenizers import SPECIAL_TOKENS, WordTokenizer
from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.models.captioner_base import END, PAD, START, UNKNOWN
from tfsparsecap.captioning.search.beam_search import Decoder, beam_search
from tfsparsecap.captioning.search.sampling import sample
from tfsparsecap.captioning.search.search_options import FUNCTION_WORDS, SearchOptions
from tfsparsecap.captioning.search.sentence_rules import SPARE_CANDIDATES, SearchRules
from tfsparsecap.errors import InputError

LENGTH = 9
FUNCTION = ["a", "the", "in", "on", "with", "and", "of", "is"]
CONTENT = """man dog shirt black red blue sits bench runs grass ball girl green water white jumps boy holds
    street field child beach plays small""".split()  # noqa: SIM905
VOCABULARY = [*SPECIAL_TOKENS, *FUNCTION, *CONTENT]


def make(seed=1, spread=1.2):
    """A captioner with large random weights that likes the unknown token, short cycles and early ends."""
    keras.utils.set_random_seed(seed)
    captioner = SoftAttention(
        len(VOCABULARY), cell="gru", embedding_size=6, rnn_size=8, attention_size=5, feature_size=7
    )
    for weight in captioner.weights:
        weight.assign(keras.random.normal(weight.shape, stddev=spread))
    bias = np.array(captioner.output_layer.bias)
    bias[[UNKNOWN, END]] += 1.5
    captioner.output_layer.bias.assign(bias)
    return captioner


def features(batch, seed=2):
    return {"features": np.random.default_rng(seed).normal(size=(batch, 4, 7)).astype("float32")}


def rules_of(captioner, **options):
    return SearchRules(captioner, SearchOptions(**options), VOCABULARY)


def broken_rules(words, word, length, ngram, function_words):
    """How many rules `word` breaks after `words`; infinite for what is never generated. All are strings."""
    if word in ("<pad>", "<start>", "<unk>") or (word == "<end>" and not words):
        return np.inf
    if word == "<end>":
        return int(words[-1] in function_words)
    broken = 0
    if ngram:
        caption = [*words, word]
        ngrams = [tuple(caption[i : i + ngram]) for i in range(len(caption) - ngram + 1)]
        third = function_words and word not in function_words and words.count(word) >= 2
        broken += bool(third or words[-1:] == [word] or (ngrams and ngrams[-1] in ngrams[:-1]))
    broken += len(words) >= length - 2 and word in function_words
    return int(broken + (len(words) == length - 1))


def python_search(captioner, inputs, beam, length, ngram=3, function_words=FUNCTION, penalty=1.0):
    """One image; captions are lists of words. Returns [(words, score)], best first."""
    memory = captioner.encode(inputs)
    captions = [{"words": [], "score": 0.0, "broken": 0, "state": captioner.initial_state(memory)}]
    for _ in range(length):
        longer = []
        for caption in captions:
            words = caption["words"]
            if "<end>" in words:
                longer.append(caption)
                continue
            last = VOCABULARY.index(words[-1]) if words else START
            logits, state = captioner.step(np.array([last], "int32"), caption["state"], memory)
            logits = np.asarray(logits, "float64")[0]
            log_probabilities = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
            for token in np.argsort(-log_probabilities)[: beam + SPARE_CANDIDATES]:
                broken = broken_rules(words, VOCABULARY[token], length, ngram, function_words)
                if broken < np.inf:
                    longer.append(
                        {
                            "words": [*words, VOCABULARY[token]],
                            "score": caption["score"] + log_probabilities[token],
                            "broken": caption["broken"] + broken,
                            "state": state,
                        }
                    )
        longer.sort(
            key=lambda candidate: (
                candidate["broken"],
                -candidate["score"] / len(candidate["words"]) ** penalty,
            )
        )
        captions = longer[:beam]
    return [(caption["words"], caption["score"]) for caption in captions]


def words_of(token_ids):
    """The words of a caption, with <end> and without padding."""
    return [VOCABULARY[token] for token in np.asarray(token_ids) if token != PAD]


def assert_equal(token_ids, scores, expected):
    assert [words_of(ids) for ids in token_ids] == [words for words, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("beam", "options"),
    [
        (1, {}),
        (2, {"penalty": 0.0}),
        (3, {}),
        (5, {"ngram": 2, "penalty": 0.7}),
        (3, {"ngram": 0}),
        (3, {"ngram": 1}),
        (2, {"ngram": 4, "function_words": []}),
        (17, {}),
    ],
)
def test_beam_search_equals_a_search_with_python_lists(beam, options):
    captioner, inputs = make(), features(1 if beam > 5 else 2)
    names = {"no_repeat_ngram": "ngram", "function_words": "function_words", "length_penalty": "penalty"}
    rules = rules_of(captioner, **{name: options[key] for name, key in names.items() if key in options})
    token_ids, scores = Decoder(captioner, beam, LENGTH, rules)(inputs)
    for image in range(len(token_ids)):
        image_inputs = {"features": inputs["features"][image, None]}
        assert_equal(
            token_ids[image], scores[image], python_search(captioner, image_inputs, beam, LENGTH, **options)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beam", "seed"), [(1, 1), *(pytest.param(beam, 3, marks=pytest.mark.slow) for beam in (3, 5))]
)
def test_exported_files_give_the_same_captions(beam, seed):
    captioner = make(seed)
    specs = {"features": tf.TensorSpec((1, 4, 7), tf.float32)}
    content = caption_graph.caption_graph(captioner, specs, beam, LENGTH, rules=rules_of(captioner))
    run = Interpreter(model_content=content).get_signature_runner()
    for image in range(5):
        inputs = features(1, seed=image)
        outputs = run(**inputs)
        expected = python_search(captioner, inputs, beam, LENGTH)
        assert_equal(outputs["token_ids"], outputs["scores"], expected)


def faults(words):
    """What is wrong with a caption, as a reader sees it."""
    problems = {"unknown"} if "<unk>" in words else set()
    text = [word for word in words if word not in SPECIAL_TOKENS]
    if not text:
        return problems | {"empty"}
    if text[-1] in FUNCTION:
        problems.add("ends early")
    if any(text.count(word) > 2 for word in CONTENT):
        problems.add("a word three times")
    if any(first == second for first, second in itertools.pairwise(text)):
        problems.add("a word twice in a row")
    trigrams = list(zip(text, text[1:], text[2:], strict=False))
    return problems | ({"a trigram twice"} if len(set(trigrams)) < len(trigrams) else set())


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("beam", [1, 3])
def test_rules_remove_all_faults_that_the_plain_search_has(beam):
    plain, with_rules = set(), set()
    for seed in range(3):
        captioner, inputs = make(seed), features(40)
        for rules, all_faults in ((None, plain), (rules_of(captioner), with_rules)):
            token_ids, scores = Decoder(captioner, beam, LENGTH, rules)(inputs)
            assert np.isfinite(scores[:, 0]).all()
            for ids in token_ids[:, 0].numpy():
                all_faults |= faults(words_of(ids))
    assert len(plain) >= 5, plain
    assert with_rules == set()


class Chain(SoftAttention):
    """Predicts each word from the last one only, with given probabilities."""

    def __init__(self, following, vocabulary):
        super().__init__(len(vocabulary), feature_size=7, rnn_size=2, embedding_size=2, attention_size=2)
        table = np.full((len(vocabulary), len(vocabulary)), -12.0, "float32")
        for word, after in following.items():
            for rank, other in enumerate(after.split()):
                table[vocabulary.index(word), vocabulary.index(other)] = -rank
        self.table = tf.constant(table)

    def step(self, token_ids, state, memory, training=False):
        return tf.gather(self.table, token_ids), state


def chain_caption(following, length, rules=True):
    captioner = Chain(following, VOCABULARY)
    token_ids, _ = beam_search(captioner, features(1), 1, length, rules_of(captioner) if rules else None)
    return " ".join(words_of(token_ids[0, 0]))


def test_a_shirt_is_not_repeated():
    following = {"<start>": "a", "a": "black", "black": "shirt", "shirt": "and <end>", "and": "a"}
    assert (
        chain_caption(following, 12, rules=False) == "a black shirt and a black shirt and a black shirt and"
    )
    assert "a black shirt and a black shirt" not in chain_caption(following, 12)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(8, "the man sits on a bench"), (7, "the man sits on a bench"), (6, "the man sits on bench")],
)
def test_captions_of_the_maximum_length_are_complete(length, expected):
    following = {"<start>": "the", "the": "man", "man": "sits", "sits": "on", "on": "a bench", "a": "bench"}
    following["bench"] = "<end>"
    assert chain_caption(following, length) == f"{expected} <end>"


def test_probability_zero_of_all_allowed_tokens_is_no_empty_caption():
    captioner = Chain({"<start>": "<unk>"}, VOCABULARY)
    captioner.table = captioner.table * 100
    token_ids, scores = beam_search(captioner, features(1), 1, 5, rules_of(captioner))
    assert words_of(token_ids[0, 0])[0] in CONTENT + FUNCTION and np.isfinite(scores[0, 0])


def test_a_tiny_vocabulary_leaves_no_empty_and_no_unknown_captions():
    vocabulary = [*SPECIAL_TOKENS, "a", "dog"]
    captioner = SoftAttention(6, feature_size=7, rnn_size=4, embedding_size=4, attention_size=4)
    rules = SearchRules(captioner, SearchOptions(), vocabulary)
    token_ids, scores = Decoder(captioner, 5, 8, rules)(features(3))
    for ids, score in zip(token_ids.numpy().reshape(-1, 8), scores.numpy().reshape(-1), strict=True):
        caption = [token for token in ids if token != PAD]
        assert (not caption and np.isneginf(score)) or (caption[0] > UNKNOWN and UNKNOWN not in caption)
    assert np.isfinite(scores[:, 0]).all()


def test_digits_of_words_may_repeat_but_captions_end():
    words = WordTokenizer(VOCABULARY)
    digits = RadixTokenizer(words, base=4)
    captioner = SoftAttention(len(digits), feature_size=7, start_id=digits.start_id, end_id=digits.end_id)
    rules = SearchRules(captioner, SearchOptions(), digits)
    assert rules.no_repeat_ngram == 0 and not rules.state_names
    token_ids, _ = Decoder(captioner, 3, 10, rules)(features(4))
    assert (token_ids.numpy()[:, :, 0] != digits.end_id).all()
    assert not np.isin(token_ids, digits.start_id).any()


@pytest.mark.slow
def test_samples_keep_the_rules_and_the_log_probabilities():
    captioner, inputs = make(), features(2)
    token_ids, log_probabilities = sample(captioner, inputs, 50, 12, seed=1, rules=rules_of(captioner))
    assert not set().union(*(faults(words_of(ids)) for ids in token_ids.numpy().reshape(-1, 12)))
    plain, _ = sample(captioner, inputs, 50, 12, seed=1)
    assert len(set().union(*(faults(words_of(ids)) for ids in plain.numpy().reshape(-1, 12)))) > 3
    ids = token_ids.numpy().reshape(100, 12)
    tokens = np.concatenate([np.full((100, 1), START, "int32"), ids[:, :-1]], axis=1)
    repeated = np.repeat(inputs["features"], 50, axis=0)
    expected = tf.nn.log_softmax(captioner({"features": repeated, "tokens": tokens}))
    expected = tf.where(ids == PAD, 0.0, tf.gather(expected, ids, batch_dims=2))
    np.testing.assert_allclose(log_probabilities.numpy().reshape(100, 12), expected, atol=1e-4)


def test_words_that_cannot_end_a_caption_are_lower_case_and_listed_once():
    assert len(set(FUNCTION_WORDS)) == len(FUNCTION_WORDS)
    assert all(word == word.lower() and word.isalpha() for word in FUNCTION_WORDS)


@pytest.mark.parametrize(
    ("name", "value"), [("no_repeat_ngram", -1), ("length_penalty", -0.1), ("length_penalty", np.nan)]
)
def test_options_out_of_range_are_rejected(name, value):
    with pytest.raises(InputError, match=name):
        SearchOptions(**{name: value})


def _captioner_that_sees(probabilities, words, seed):
    """A captioner of these objects, which has these probabilities for any image with four regions."""
    keras.utils.set_random_seed(seed)
    sizes = {"feature_size": 6, "rnn_size": 5, "attention_size": 4, "embedding_size": 4}
    captioner = SoftAttention(len(words), objects=list(probabilities), **sizes)
    odds = [np.log(p / (1 - p)) - np.log(4) for p in probabilities.values()]
    captioner.object_scores.set_weights([np.zeros((6, len(odds))), np.array(odds)])
    return captioner


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_words_count_as_much_as_the_objects_that_they_name_are_probable(batch):
    probabilities = {"cat": 0.7, "dog": 0.001}
    words = ["<pad>", "<start>", "<end>", "<unk>", "hot", "dogs", "kitten", "runs"]
    captioner = _captioner_that_sees(probabilities, words, seed=4)
    options = SearchOptions(no_repeat_ngram=0, function_words=(), length_penalty=0.8)
    rules = SearchRules(captioner, options, words)
    features = np.random.default_rng(0).normal(size=(batch, 4, 6)).astype(np.float32)
    token_ids, scores = beam_search(captioner, {"features": features}, 300, 3, rules)
    # All captions of at most two words, with the logarithms that the equation in the docstring gives.
    evidence = {5: np.log(0.01), 6: np.log(0.7)}
    for image in range(batch):
        expected = []
        for first in range(4, 8):
            for second in [None, *range(4, 8)]:
                caption = [first] if second is None else [first, second]
                before = np.array([[1, *caption]])
                logits = captioner({"features": features[image : image + 1], "tokens": before})
                chosen = np.arange(len(caption) + 1), [*caption, 2]
                score = tf.nn.log_softmax(logits).numpy()[0][chosen].sum()
                named = [word for word, last in zip(caption, [1, *caption], strict=False) if last != 4]
                rank = (score + sum(evidence.get(word, 0) for word in named)) / (len(caption) + 1) ** 0.8
                expected.append((rank, score, caption))
        expected.sort(reverse=True)
        captions = [[int(token) for token in row if token > 2] for row in token_ids[image, : len(expected)]]
        assert captions == [caption for _, _, caption in expected]
        expected_scores = [score for _, score, _ in expected]
        np.testing.assert_allclose(scores[image, : len(expected)], expected_scores, atol=1e-4)


def test_objects_do_not_count_without_words():
    captioner = _captioner_that_sees({"cat": 0.7, "dog": 0.001}, range(8), seed=4)
    assert not SearchRules(captioner, SearchOptions()).sees_objects


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_objects_count_in_exported_files(beam):
    probabilities = {"dog": 0.9, "ball": 0.001, "grass": 0.4}
    captioner = _captioner_that_sees(probabilities, VOCABULARY, seed=2)
    captioner.output_layer.kernel.assign(4 * captioner.output_layer.kernel)
    rules = SearchRules(captioner, SearchOptions(function_words=FUNCTION), VOCABULARY)
    specs = {"features": tf.TensorSpec((1, 4, 6), tf.float32)}
    run = Interpreter(
        model_content=caption_graph.caption_graph(captioner, specs, beam, LENGTH, rules=rules)
    ).get_signature_runner()
    random, several = np.random.default_rng(1), Decoder(captioner, beam, LENGTH, rules)
    inputs = random.normal(size=(5, 4, 6)).astype(np.float32)
    token_ids, scores = several({"features": inputs})
    for image, features_of_one in enumerate(inputs):
        outputs = run(features=features_of_one[None])
        np.testing.assert_array_equal(outputs["token_ids"], token_ids[image])
        np.testing.assert_allclose(outputs["scores"], scores[image], atol=1e-3)
        np.testing.assert_allclose(outputs["objects"], [*probabilities.values()], atol=1e-5)
