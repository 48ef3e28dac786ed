"""The export of captioners: files that take a photograph and return sentences.

`export_captioner` reads from top to bottom: convert (`caption_graph`, with the whole beam search in the
file), encode (`int8_encoder` for the encoder), find out what int8 costs in CIDEr and keep layers float that
lose too much (`quality`), compare captions with the Keras model's (`caption_check`), calibrate the
confidence, and write the file with its vocabulary and description. The folders beside this one serve any
Keras model.
"""
