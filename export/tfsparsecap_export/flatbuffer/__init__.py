"""Reading and changing the FlatBuffer of a .tflite file.

`model_file` reads a file into objects and writes it again, `compact` drops what nothing uses, `stored`
decodes constants in any encoding, and `contents` describes a file for people.
"""
