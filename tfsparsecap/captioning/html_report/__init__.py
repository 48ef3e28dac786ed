"""Reports: pictures of what runs have learned, for people to look at.

`compared_runs` reads the curves, scores and captions of run folders. `page` makes one HTML page of them:
scores side by side, captions under test images, attention maps (`attention_maps`), values by epoch, sizes of
exported files. `image_sheet` draws a PNG with images and their captions for the demo.

`python -m tfsparsecap.report` writes the page.
"""
