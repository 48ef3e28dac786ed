"""Writes the references of the Java tests: pixels, captions and verdicts of the Python package and Pillow.

    python android_demo/app/src/test/python/fixtures.py

Run it again when the app's models change, or the way Python reads images and bundles. The captions of the
Flickr8k test images need data/flickr8k_1k in the folder TFSPARSECAP_SHARED, by default ../shared beside the
checkout; without it they are left unchanged.
"""

import json
import os
import sys
from pathlib import Path

from bundle_fixtures import captions_of_100, damage, graphs, model_captions, objects, texts
from image_fixtures import camera_frame, formats, scalings, scenes

RESOURCES = Path(__file__).resolve().parents[1] / "resources" / "captioner"


OF_100 = "captions_of_100.json"


def main() -> None:
    RESOURCES.mkdir(parents=True, exist_ok=True)
    for old in RESOURCES.iterdir():
        if old.name != OF_100:
            old.unlink()
    write("scalings.json", scalings(RESOURCES))
    write("formats.json", formats(RESOURCES))
    camera_frame(RESOURCES)
    images = scenes(RESOURCES)
    write("captions.json", model_captions(images))
    graphs(RESOURCES)
    drawings = (RESOURCES.parent / "demo").glob("*.jpg")
    write("objects.json", objects(RESOURCES, [*images, *sorted(drawings)]))
    write("texts.json", texts())
    write("damage.json", damage(RESOURCES))
    shared = Path(os.environ.get("TFSPARSECAP_SHARED", Path(__file__).resolve().parents[6] / "shared"))
    photos = shared / "data" / "flickr8k_1k"
    if photos.is_dir():
        write(OF_100, captions_of_100(photos))
    else:
        print(f"{photos} is missing: {OF_100} is left unchanged", file=sys.stderr)


def write(name: str, content: object) -> None:
    path = RESOURCES / name
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
