"""The one exception that means "the input is wrong": its message is a sentence for the person who gave it."""


class InputError(ValueError):
    """What a user gave cannot be used: says what was given, where, and what to do about it.

    The command lines print the message without a traceback and exit with code 2.
    """
