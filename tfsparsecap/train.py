r"""python -m tfsparsecap.train: trains a captioner, and prunes it during training.

Writes settings, vocabulary, checkpoints, history, model.keras and test scores to runs/NAME.
--list-settings shows all settings, with their defaults and meanings.

examples:
  python -m tfsparsecap.train
      the quickstart: synthetic scenes, a small captioner, 90 % pruned
  python -m tfsparsecap.train --config flickr8k_good data.folder=~/flickr8k
      the best captioner in 7 MB, on Flickr8k
  python -m tfsparsecap.train --config flickr8k_good data.folder=~/flickr8k \
      pruning.sparsity=0.9 name=sparser
      the same with other settings, in another run folder
  python -m tfsparsecap.train --config flickr8k_good data.kind=table \
      data.folder=~/photos name=mine
      your own photographs, with a table of captions (docs/data.md)
  python -m tfsparsecap.train --list-settings training
      the settings of a section
  python -m tfsparsecap.train name=dense pruning=null
      without pruning
  python -m tfsparsecap.train --workers 10.0.0.1:2222,10.0.0.2:2222 --worker 0
      the chief of two machines; on the other one, the same with --worker 1
  python -m tfsparsecap.train --resume
      resume an interrupted run
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tfsparsecap.command import only_json_on_stdout, parser, print_table, run, start_tensorflow


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument(
        "--config",
        metavar="FILE.yaml",
        help="settings file, or the name of one that comes with the package, such as flickr8k_good (default:"
        " the quickstart)",
    )
    options.add_argument(
        "settings", nargs="*", metavar="section.key=value", help="settings that override the file"
    )
    options.add_argument(
        "--list-settings",
        nargs="?",
        const="",
        metavar="SECTION",
        help="show all settings, or those of a section such as training, and train nothing",
    )
    options.add_argument(
        "--resume", action="store_true", help="resume the run in runs/NAME from its last checkpoint"
    )
    options.add_argument(
        "--runs", metavar="FOLDER", default="runs", help="parent folder of the run folders (default: runs)"
    )
    options.add_argument(
        "--workers",
        metavar="HOST:PORT,…",
        help="addresses of all processes of a training on several machines, the chief first",
    )
    options.add_argument(
        "--worker", type=int, metavar="N", help="which of the workers this process is, from 0 (the chief)"
    )
    options.add_argument(
        "--json", action="store_true", help="print the scores as JSON, everything else to standard error"
    )
    options.add_argument("--quiet", action="store_true", help="no progress bars and no lines for epochs")
    return options.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Trains a captioner.

    Raises:
        InputError: a setting or what it refers to is invalid.
    """
    options = arguments(argv)
    if options.list_settings is not None:
        from tfsparsecap.captioning.settings.listing import listing

        print(listing(options.list_settings))
        return 0
    with only_json_on_stdout(options.json):
        # Misspelt settings are reported before TensorFlow is imported, which takes seconds.
        from tfsparsecap.captioning.settings.config_files import load_config

        settings = options.settings
        if options.workers is not None:
            settings = [*settings, "training.distribution=multi_worker"]
        config = load_config(options.config, settings)
        start_tensorflow()
        from tfsparsecap.captioning.inference.scoring import scores_table
        from tfsparsecap.captioning.training.cluster import read_cluster
        from tfsparsecap.captioning.training.train_run import train_run

        cluster = None
        if options.worker is not None or config.training.distribution == "multi_worker":
            cluster = read_cluster(options.workers, options.worker)
        verbose = 0 if options.quiet else 1 if sys.stdout.isatty() else 2
        try:
            scores = train_run(
                config, resume=options.resume, runs=options.runs, verbose=verbose, cluster=cluster
            )
        except KeyboardInterrupt:
            settings_file = f"{options.runs}/{config.name}/config.yaml"
            if not Path(settings_file).is_file():
                raise KeyboardInterrupt(
                    "stopped before the first epoch: start the same command again"
                ) from None
            given = {"--workers": options.workers, "--worker": options.worker}
            cluster_options = [str(part) for item in given.items() if item[1] is not None for part in item]
            command = shlex.join(
                ["--config", settings_file, "--runs", options.runs, *cluster_options, "--resume"]
            )
            raise KeyboardInterrupt(f"stopped: continue with python -m tfsparsecap.train {command}") from None
        if not options.json and "split" in scores:
            print_table(scores["run"], scores_table(scores))
    if options.json:
        print(json.dumps(scores))
    return 0


if __name__ == "__main__":
    run(main)
