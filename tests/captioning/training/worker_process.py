"""A worker of a training, in a process that has imported TensorFlow already."""

import os
import signal
import sys

import tensorflow as tf

from tfsparsecap import train
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.captioning.training.train_run import train_run  # noqa: F401 (before processes are forked)
from tfsparsecap.command import run


def work(arguments, fatal, output):
    """Runs `tfsparsecap.train` with these arguments, and exits; what it prints goes into the file `output`.

    `fatal` is the number of the epoch, from 0, in whose first step the process kills itself; -1 never does.
    Graphs, which run only a few times, are not optimised.
    """
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    epoch_of = Loop._epoch

    def epoch_that_kills(self, dataset, callbacks, epoch):
        if epoch == fatal:
            next(iter(dataset))
            os.kill(os.getpid(), signal.SIGTERM)
        return epoch_of(self, dataset, callbacks, epoch)

    Loop._epoch = epoch_that_kills
    sys.argv = ["train", *arguments]
    run(train.main)
