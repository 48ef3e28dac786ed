"""Running .tflite files on LiteRT."""

from typing import Any

from tfsparsecap.core.hidden_stderr import hidden_stderr


def signature_runner(content: bytes, signature: str, **options: Any) -> Any:
    """The function of a signature of a .tflite file, without the runtime's messages about its delegate.

    Args:
        content: the file.
        signature: its name in the file.
        options: of LiteRT's `Interpreter`, such as `num_threads`.

    Raises:
        ValueError, RuntimeError: the runtime does not load the file, or it has no such signature.
    """
    from ai_edge_litert.interpreter import Interpreter  # takes half a second

    with hidden_stderr():
        interpreter = Interpreter(model_content=content, **options)
        interpreter.allocate_tensors()  # creates the delegate
        return interpreter.get_signature_runner(signature)
