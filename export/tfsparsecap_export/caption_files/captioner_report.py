"""What the export of a captioner did: the report of any export, and the quality of the captions."""

import dataclasses
from typing import Any

from tfsparsecap.captioning.inference.confidence import Calibration
from tfsparsecap_export.caption_files.quality import Quality
from tfsparsecap_export.encode.encoded_file import LayerReport
from tfsparsecap_export.encode.sparse import CONVOLUTION
from tfsparsecap_export.export_report import ExportReport


@dataclasses.dataclass(frozen=True)
class CaptionerReport(ExportReport):
    """The result of `export_model` for a captioner. Its `sparsity` is that of all but the encoder.

    Attributes:
        quality: loss of CIDEr due to int8, or None if it was not measured.
        confidence: calibration of the confidence, or None if the file has none.
    """

    quality: Quality | None = None
    confidence: Calibration | None = None

    @property
    def times(self) -> str:
        return f"ms/{self.words} words"

    def counted(self) -> list[LayerReport]:
        return [layer for layer in self.layers if layer.role != CONVOLUTION]

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "quality": self.quality and self.quality.as_dict()}

    def measured(self) -> list[str]:
        sentences, quality = [], self.quality
        if quality is not None and quality.not_computed:
            sentences.append(f"The loss of CIDEr due to int8 was not measured: {quality.not_computed}.")
        elif quality is not None:
            sentences.append(
                f"CIDEr on {quality.images} validation images: {quality.float_cider:.4f} in float32,"
                f" {quality.cider:.4f} in this file ({-quality.loss:+z.2%} ± {quality.loss_error:.2%})."
                + (f" Stored as float: {', '.join(quality.kept_float)}." if quality.kept_float else "")
            )
        if self.confidence is not None:
            sentences.append(
                f"Confidence: calibrated on {self.confidence.images} validation images, of which"
                f" {self.confidence.good:.1%} have a good caption."
            )
        return sentences
