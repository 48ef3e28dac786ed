"""Workers on loopback: the handshake, shared decisions, lost workers, whole trainings of two processes."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.trainer_processes import free_addresses
from tfsparsecap.errors import InputError, WorkerLost
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.training import workers
from tfsparsecap.training.callbacks import SaveEpoch
from tfsparsecap.training.cluster import Cluster
from tfsparsecap.training.workers import Alone, Team

from .training_runs import arrays, assert_same_arrays, history, train

#: Seconds after which a test gives up; long, because other processes may need the processor.
PATIENCE = 600
FACTS = {"version": "1", "training.learning_rate": "2", "data": "3"}


@pytest.fixture
def addresses():
    return free_addresses(2)


class Process:
    """A thread that takes part in a training like a process."""

    def __init__(self, addresses, index, body=lambda team: None, facts=FACTS, seconds=PATIENCE):
        self.messages, self.codes, self.error, self.result = [], [], None, None
        self.ended = threading.Event()
        self._arguments = Cluster(addresses, index), facts, seconds, body
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        cluster, facts, seconds, body = self._arguments
        try:
            team = Team(
                cluster,
                facts,
                lambda fact: f"has another {fact} than the chief",
                self.messages.append,
                seconds=seconds,
                end=lambda code: self.codes.append(code) or self.ended.set(),
            )
            with team:
                self.result = body(team)
        except (InputError, WorkerLost, RuntimeError) as error:
            self.error = error

    def join(self):
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self


def test_a_single_process_shares_with_nobody():
    with Alone() as team:
        assert team.share({"loss": 1.0}) == {"loss": 1.0} and team.is_chief and team.size == 1
        team.end_training()


def test_all_workers_get_the_values_of_the_chief():
    addresses = free_addresses(3)

    def body(team):
        shared = [team.share({"loss": team.cluster.index + step}) for step in range(3)]
        team.end_training()
        return shared

    processes = [Process(addresses, index, body) for index in (2, 0, 1)]
    for process in processes:
        process.join()
        assert process.error is None and process.result == [{"loss": step} for step in range(3)]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({**FACTS, "version": "0"}, "has another version than the chief"),
        ({**FACTS, "training.learning_rate": "0"}, "has another training.learning_rate than the chief"),
        ({**FACTS, "data": "0"}, "has another data than the chief"),
        ({**FACTS, "more": "0"}, "has other settings than the chief"),
        ({"version": "1"}, "has another training.learning_rate than the chief"),
    ],
)
def test_a_worker_that_differs_is_rejected_by_name_and_can_be_replaced(addresses, facts, reason):
    chief = Process(addresses, 0)
    worker = Process(addresses, 1, facts=facts).join()
    assert isinstance(worker.error, InputError)
    assert str(worker.error).startswith(f"worker 1 ({addresses[1]}) {reason}")
    assert Process(addresses, 1).join().error is None
    assert chief.join().error is None
    assert any(text.startswith("worker 1 (") and "rejected" in text for text in chief.messages)


def test_a_late_worker_is_rejected_by_name(addresses):
    started, late = threading.Event(), threading.Event()
    chief = Process(addresses, 0, lambda team: started.set() or late.wait(PATIENCE))
    worker = Process(addresses, 1, lambda team: team.end_training())
    assert started.wait(PATIENCE)
    second = Process(addresses, 1).join()
    late.set()
    assert f"worker 1 ({addresses[1]}) is late: the training is running" in str(second.error)
    assert chief.join().error is None and worker.join().error is None


def test_missing_processes_are_named(addresses):
    chief = Process(addresses, 0, seconds=0.2).join()
    assert f"worker 1 ({addresses[1]}) did not join within 0.2 s" in str(chief.error)
    worker = Process(addresses, 1, seconds=0.2).join()
    assert f"the chief ({addresses[0]}) does not answer on port" in str(worker.error)


def test_a_port_that_is_in_use_is_named(addresses):
    with socket.create_server(Cluster(addresses, 0).control_address()):
        chief = Process(addresses, 0, seconds=0.2).join()
    assert "the chief cannot listen on 127.0.0.1:" in str(chief.error)


@pytest.mark.parametrize(
    "greeting",
    [
        *(b"GET / HTTP/1.1\r\n\r\n", b"[" * 200_000 + b"\n", b"\x80\x04.\n", b""),
        b'{"worker": 7, "facts": {}}\n',
        b'{"worker": true, "facts": {}}\n',
        b'{"worker": 1, "facts": []}\n',
        b'{"worker": 0, "facts": {}}\n',
    ],
)
def test_strangers_do_not_disturb_the_chief(addresses, greeting):
    chief = Process(addresses, 0)
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            stranger = socket.create_connection(Cluster(addresses, 0).control_address(), PATIENCE)
            break
    with stranger, contextlib.suppress(OSError):
        stranger.sendall(greeting)
        stranger.shutdown(socket.SHUT_WR)
        answer = stranger.recv(10_000)
        assert not answer or b"rejected" in answer
    assert Process(addresses, 1).join().error is None
    assert chief.join().error is None


def test_a_chief_that_ends_wakes_the_workers(addresses):
    chief = Process(addresses, 0, lambda team: team._close())  # as the operating system does
    worker = Process(addresses, 1, lambda team: team.share(None)).join()
    assert isinstance(worker.error, WorkerLost)
    assert f"the chief ({addresses[0]}) has ended: start all workers again with --resume" in str(worker.error)
    chief.join()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(ConnectionResetError, "worker 1 (b:1) has ended"), (TimeoutError, "worker 1 (b:1) does not answer")],
)
def test_a_killed_worker_has_ended_and_a_silent_one_does_not_answer(error, sentence):
    def receive(seconds):
        raise error

    team, lost = object.__new__(Team), []
    team.cluster, team._closed, team._lose = Cluster(("a:1", "b:1"), 0), False, lost.append
    team._listen(1, SimpleNamespace(receive=receive))
    assert len(lost) == 1 and lost[0].startswith(sentence)


def test_the_reason_of_a_failure_reaches_the_others(addresses):
    def fail(team):
        raise InputError("the disk is full")

    chief = Process(addresses, 0, fail)
    worker = Process(addresses, 1, lambda team: team.share(None)).join()
    assert f"the chief ({addresses[0]}) has stopped: the disk is full" in str(worker.error)
    assert str(chief.join().error) == "the disk is full"


def test_an_error_of_the_exchange_becomes_a_lost_worker(addresses):
    def exchange(team):
        raise tf.errors.UnavailableError(None, None, "connection reset by peer")

    def vanish(team):
        team._close()

    chief, worker = Process(addresses, 0, exchange), Process(addresses, 1, vanish)
    assert f"worker 1 ({addresses[1]}) has ended" in str(chief.join().error)
    worker.join()


def test_a_process_that_waits_inside_tensorflow_is_ended(addresses, monkeypatch, capfd):
    monkeypatch.setattr(workers, "END", 0.05)
    stop = threading.Event()
    chief = Process(addresses, 0, lambda team: stop.wait(PATIENCE))
    worker = Process(addresses, 1, lambda team: team._close())
    assert chief.ended.wait(PATIENCE) and chief.codes == [3]
    stop.set()
    chief.join()
    worker.join()
    assert f"error: worker 1 ({addresses[1]}) has ended" in capfd.readouterr().err


def test_a_worker_without_signs_of_life_is_lost(addresses, monkeypatch):
    monkeypatch.setattr(workers, "SILENCE", 0.3)
    monkeypatch.setattr(workers, "SIGN", 1000.0)
    stop = threading.Event()
    chief = Process(addresses, 0, lambda team: stop.wait(PATIENCE))
    worker = Process(addresses, 1, lambda team: team.share(None)).join()
    assert "does not answer any more" in str(worker.error)
    stop.set()
    chief.join()


# Whole trainings.

#: A larger epsilon, because Adam's first steps would otherwise amplify rounding errors of tiny gradients.
SETTINGS = [
    "name=workers",
    "training.epochs=3",
    "training.batch_size=50",
    "training.adam_epsilon=1e-3",
    "training.validation_images=0",
    "data.max_length=3",
    "data.test=0",
]


@pytest.fixture(scope="module")
def settings(tiny_settings, shared_folder):
    return [*tiny_settings, *SETTINGS, f"data.folder={shared_folder / 'scenes_of_workers'}"]


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    """Folder of the run of a single process."""
    return train(tmp_path_factory.mktemp("alone"), settings)[0]


def start(runs, settings, *arguments, fatal=(-1, -1)):
    """Starts two worker processes; returns their exit codes and what they printed."""
    addresses, processes = free_addresses(2), []
    for index in range(2):
        command = [sys.executable, str(Path(__file__).with_name("worker_process.py")), str(fatal[index])]
        command += [*settings, "--runs", str(runs), "--quiet", *arguments]
        command += ["--workers", ",".join(addresses), "--worker", str(index)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        processes.append(subprocess.Popen(command, env=environment, **pipes))
    try:
        printed = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], printed


def assert_close(found, expected):
    """The weights and the state of the optimizer are the same up to rounding."""
    found, expected = arrays(found), arrays(expected)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.slow
def test_two_workers_equal_one_process_and_survive_a_kill(settings, alone, tmp_path):
    folder = RunFolder(tmp_path / "workers")
    codes, printed = start(tmp_path, settings, fatal=(-1, 2))
    assert codes == [3, -9], printed
    (sentence,) = [line for line in printed[0].splitlines() if line.startswith("error: ")]
    assert "error: worker 1 (127.0.0.1:" in sentence and "start all workers again" in sentence
    undisturbed = shutil.copy(folder.checkpoint(2), tmp_path)
    folder.checkpoint(2).unlink()
    codes, printed = start(tmp_path, settings, "--resume")
    assert codes == [0, 0], printed
    assert_same_arrays(arrays(folder.checkpoint(2)), arrays(undisturbed))
    assert_close(folder.checkpoint(3), alone.checkpoint(3))
    assert history(folder)[2]["loss"][:5] == history(alone)[2]["loss"][:5]
    assert folder.model.is_file() and "joins the chief" in printed[1]


class Stopped(Exception):
    """Simulates a power failure."""


@pytest.mark.slow
def test_two_devices_equal_one_and_resume(settings, alone, tmp_path, monkeypatch):
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("needs two logical CPU devices, which tests/training/conftest.py makes")
    settings = [*settings, "training.distribution=mirrored"]
    save = SaveEpoch.on_epoch_end

    def save_and_stop(self, epoch, logs=None):
        save(self, epoch, logs)
        if epoch == 1:
            raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(SaveEpoch, "on_epoch_end", save_and_stop)
        train(tmp_path, settings)
    folder = RunFolder(tmp_path / "workers")
    undisturbed = shutil.copy(folder.checkpoint(2), tmp_path)
    folder.checkpoint(2).unlink()
    train(tmp_path, settings, resume=True)
    assert_same_arrays(arrays(folder.checkpoint(2)), arrays(undisturbed))
    assert_close(folder.checkpoint(3), alone.checkpoint(3))
