"""From probabilities of words to sentences: greedy and beam search, and sampling.

`beam_search` works for every `Captioner`, also inside an exported file; `sampling` serves training on rewards
and several captions of an image. `sentence_rules` keep them from repeated words and from ends in the middle
of a sentence; `search_options` are their settings.
"""
