"""Reports: pictures of what runs have learned, for people to look at.

`runs.py` reads the curves, scores and captions of run folders. `page.py` makes one HTML page of them: scores
side by side, captions under test images, attention maps (`attention.py`), values by epoch, sizes and
latencies of exported files. `image_sheet.py` draws a PNG with images and their captions for the demo.

`python -m tfsparsecap.report` writes the page.
"""
