"""Scores of captions: how near they are to people's, and whether they name what is there.

`scores` runs pycocoevalcap's BLEU, METEOR, ROUGE-L, CIDEr and SPICE, with Java where they need it (`java`,
`spice`), or with a tokenizer of our own (`tokenize`). `named_objects` measures object recall and
hallucination against labels. `caption_statistics` describes captions without references.
"""

#: All metrics of `scores`, in the usual order of papers.
METRICS = ("BLEU", "METEOR", "ROUGE-L", "ROUGE-1", "CIDEr", "SPICE")
