"""Writes the pixels that Python reads from Flickr8k test images, for Flickr8kCaptionsTest.

python android_demo/app/src/test/python/pixels.py SHARED/data/flickr8k_1k pixels.bin
mvn -f android_demo/pom.xml test -Dtest=Flickr8kCaptionsTest -Dphotos=100 -Dpixels=$PWD/pixels.bin
"""

import json
import sys
from pathlib import Path

from tfsparsecap.captioning.data.images import read_image

CAPTIONS = Path(__file__).resolve().parents[1] / "resources" / "captioner" / "captions_of_100.json"
SIDE = 224


def main(photos: str, output: str) -> None:
    names = json.loads(CAPTIONS.read_text(encoding="utf-8"))["sparse.tflite"]["captions"]
    with open(output, "wb") as file:
        for name in names:
            file.write(read_image(Path(photos) / "Images" / name, SIDE).tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
