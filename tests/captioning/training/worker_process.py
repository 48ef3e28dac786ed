"""Runs `tfsparsecap.train` in a process of its own, which kills itself if told so.

    python worker_process.py EPOCH arguments of tfsparsecap.train …

EPOCH is the number of the epoch, from 0, in whose first step the process kills itself; -1 never does.
Graphs, which run only a few times, are not optimised.
"""

import os
import signal
import sys

from tfsparsecap.command import run, start_tensorflow
from tfsparsecap.train import main

if __name__ == "__main__":
    fatal = int(sys.argv.pop(1))
    start_tensorflow()
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if fatal >= 0:
        from tfsparsecap.captioning.training.loop import Loop

        epoch_of = Loop._epoch

        def epoch_that_kills(self, dataset, callbacks, epoch):
            if epoch == fatal:
                next(iter(dataset))
                os.kill(os.getpid(), signal.SIGTERM)
            return epoch_of(self, dataset, callbacks, epoch)

        Loop._epoch = epoch_that_kills
    run(main)
