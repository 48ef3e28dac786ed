"""From probabilities of words to sentences: greedy and beam search, and sampling.

`beam_search` and `sampling` work for every `Captioner`, in training and in exported files. `sentence_rules`
keep them from repeated words and from ends in the middle of a sentence; `search_options` are their settings.
"""
