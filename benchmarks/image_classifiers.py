"""LeNet-5 and ResNet-32, and the experiments of the paper on relevance-based pruning that train them."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.image_data import Split


@dataclass(frozen=True)
class Experiment:
    """A table of the paper: its Table 1 and sections 5.2 to 5.4.

    Attributes:
        title: data set and network.
        build: creates the network.
        epochs: of the dense network, of pruning (at most) and of the final fine-tuning.
        batch_sizes: of these phases.
        interval: steps between two validations while pruning.
        lower_bound: on the validation accuracy.
        from_dense: whether pruning starts from the dense network instead of random weights.
        weight_decays: of the methods, as a term of the loss: the paper's lambda for relevance, the same for
            L2, our own for L1.
        decoupled: of the methods, beside the optimizer.
        published: method -> test accuracy and sparsity in percent.
    """

    title: str
    build: Callable[[], keras.Model]
    epochs: dict[str, float]
    batch_sizes: dict[str, int]
    interval: int
    lower_bound: float
    from_dense: bool
    weight_decays: dict[str, float]
    decoupled: dict[str, float]
    published: dict[str, tuple[float, float]]

    def optimizer(self, phase: str, steps: int) -> keras.optimizers.Optimizer:
        if self.build is lenet5:
            return keras.optimizers.Adam(1e-3)
        if phase == "dense":
            rates = keras.optimizers.schedules.PiecewiseConstantDecay(
                [steps // 2, steps * 3 // 4], [0.1, 0.01, 0.001]
            )
            # Keras's weight decay is not multiplied by 1 / (1 - momentum), as an L2 penalty of 1e-4 would be.
            return keras.optimizers.SGD(rates, momentum=0.9, weight_decay=1e-3)
        return keras.optimizers.SGD(5e-4 if phase == "pruning" else 6e-5, momentum=0.9)


def lenet5() -> keras.Model:
    """LeNet-5 with the paper's 431,080 parameters and four layers (its text names other layers)."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(20, 5, activation="relu", name="conv1"),
            layers.MaxPooling2D(),
            layers.Conv2D(50, 5, activation="relu", name="conv2"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(500, "relu", name="fc1"),
            layers.Dense(10, "softmax", name="fc2"),
        ]
    )


def resnet32(widths: Sequence[int] = (16, 32, 64)) -> keras.Model:
    """ResNet-32 for CIFAR-10 (464,154 parameters): https://arxiv.org/abs/1512.03385, section 4.2.

    Args:
        widths: channels of the three stages.
    """
    layers = keras.layers

    def convolution(x: Any, filters: int, stride: int = 1) -> Any:
        x = layers.Conv2D(filters, 3, stride, "same", use_bias=False, kernel_initializer="he_normal")(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)

    inputs = keras.Input((32, 32, 3))
    mean, deviation = np.array([125.3, 123.0, 113.9]), np.array([63.0, 62.1, 66.7])
    x = layers.Normalization(mean=mean, variance=deviation**2)(inputs)
    x = layers.ReLU()(convolution(x, widths[0]))
    for (stage, filters), block in itertools.product(enumerate(widths), range(5)):
        stride = 2 if stage and block == 0 else 1
        y = layers.ReLU()(convolution(x, filters, stride))
        y = convolution(y, filters)
        if stride == 2:  # shortcut without parameters: every second pixel, and zeros for the new channels
            new = filters - widths[stage - 1]
            x = keras.ops.pad(x[:, ::2, ::2], [(0, 0), (0, 0), (0, 0), (new // 2, new - new // 2)])
        x = layers.ReLU()(x + y)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, "softmax", name="output")(x))


_LENET = {
    "build": lenet5,
    "batch_sizes": {"dense": 100, "pruning": 100, "fine-tuning": 100},
    "interval": 250,
    "weight_decays": {"relevance": 1e-3, "l1": 1e-4, "l2": 1e-3, "magnitude": 0.0},
    "decoupled": {"relevance": 1e-3, "l1": 3e-5, "l2": 1e-4, "magnitude": 0.0},
}
EXPERIMENTS = {
    "mnist": Experiment(
        title="LeNet-5 on MNIST",
        epochs={"dense": 21, "pruning": 120, "fine-tuning": 5},
        lower_bound=0.987,
        from_dense=False,
        published={"dense": (99.32, 0.0), "relevance": (99.23, 99.71), "magnitude": (99.23, 91.59)},
        **_LENET,
    ),
    "fashion_mnist": Experiment(
        title="LeNet-5 on Fashion-MNIST",
        epochs={"dense": 21, "pruning": 75, "fine-tuning": 50},
        lower_bound=0.905,
        from_dense=True,
        published={"dense": (91.90, 0.0), "relevance": (91.70, 97.66), "magnitude": (91.56, 93.04)},
        **_LENET,
    ),
    "cifar10": Experiment(
        title="ResNet-32 on CIFAR-10",
        build=resnet32,
        epochs={"dense": 200, "pruning": 290, "fine-tuning": 1},
        batch_sizes={"dense": 128, "pruning": 128, "fine-tuning": 64},
        interval=25,
        lower_bound=0.929,
        from_dense=True,
        weight_decays={"relevance": 1e-6, "l1": 1e-7, "l2": 1e-6, "magnitude": 0.0},
        decoupled={"relevance": 1e-5, "l1": 1e-7, "l2": 1e-5, "magnitude": 0.0},
        published={"dense": (92.67, 0.0), "relevance": (92.67, 81.27), "magnitude": (91.92, 71.51)},
    ),
}


def fit(
    model: keras.Model,
    experiment: Experiment,
    phase: str,
    splits: tuple[Split, Split],
    share: float = 1.0,
    *callbacks: keras.callbacks.Callback,
) -> None:
    """Trains a network in one phase, and validates it each epoch, or each `interval` while pruning.

    Args:
        model: not compiled.
        phase: a key of `experiment.epochs`.
        splits: for training and validation.
        share: of the paper's epochs.
    """
    train, validation = splits
    batch_size = experiment.batch_sizes[phase]
    steps = max(1, len(train[0]) // batch_size)
    interval = min(steps, experiment.interval) if phase == "pruning" else steps
    validations = max(1, round(experiment.epochs[phase] * share * steps / interval))
    data = tf.data.Dataset.from_tensor_slices(train).shuffle(len(train[0])).repeat()
    if experiment.build is resnet32:
        data = data.map(crop_and_flip)
    model.compile(
        experiment.optimizer(phase, validations * interval),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=interval,
    )
    model.fit(
        data.batch(batch_size).prefetch(2),
        epochs=validations,
        steps_per_epoch=interval,
        validation_data=validation,
        validation_batch_size=500,
        callbacks=list(callbacks),
        shuffle=False,  # the dataset shuffles
        verbose=2,
    )


def crop_and_flip(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A random crop of an image of 32 x 32 pixels with 4 zeros on each side, mirrored half of the time."""
    image = tf.image.random_crop(tf.pad(image, [(4, 4), (4, 4), (0, 0)]), (32, 32, 3))
    return tf.image.random_flip_left_right(image), label
