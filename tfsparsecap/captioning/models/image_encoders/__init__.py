"""Encoders: networks that turn images into feature maps for a captioner.

`encoder_base` cuts a network at one of its layers, scales its images, and freezes all of it or its first
part. `tiny_vit`, `efficientnet_lite` and `inception_v1` are built here and read their `published_weights`;
`applications` has the networks of Keras, `hub` those of KerasHub.
"""
