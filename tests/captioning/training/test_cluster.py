"""Addresses of the workers from the command line and from TF_CONFIG."""

import json

import pytest

from tfsparsecap.captioning.training.cluster import Cluster, read_cluster
from tfsparsecap.errors import InputError

CONFIG = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}


def from_environment(**changes):
    return read_cluster(None, None, {"TF_CONFIG": json.dumps({**CONFIG, **changes})})


def test_options_take_precedence_over_the_environment():
    assert read_cluster("x:1, y:1", 1, {"TF_CONFIG": json.dumps(CONFIG)}) == Cluster(("x:1", "y:1"), 1)
    assert read_cluster(None, None, {}) is None


def test_tf_config_may_name_a_chief_before_the_workers():
    assert from_environment() == Cluster(("a:1", "b:2"), 1)
    jobs = {"chief": ["c:3"], "worker": ["a:1"]}
    assert from_environment(cluster=jobs, task={"type": "worker", "index": 0}) == Cluster(("c:3", "a:1"), 1)
    assert from_environment(cluster=jobs, task={"type": "chief", "index": 0}).is_chief


def test_an_ipv6_address_has_brackets():
    cluster = Cluster(("[::1]:10", "h:12"), 0)
    assert cluster.host_and_port(0) == ("::1", 10) and cluster.host_and_port(1) == ("h", 12)


@pytest.mark.parametrize(
    ("workers", "worker", "message"),
    [
        ("a:1,b:1", None, "belong together"),
        (None, 0, "belong together"),
        ("a:1", 0, "give the addresses of two"),
        ("a:1,a:1", 0, "give the addresses of two"),
        ("a:1,b", 0, "'b' is not the address of a worker"),
        ("a:1,b:0", 0, "'b:0' is not the address"),
        ("a:1,b:70000", 0, "'b:70000' is not the address"),
        ("a:1,b:1", 2, "there is no worker 2: the workers have the numbers 0 to 1"),
        ("a:1,b:1", -1, "there is no worker -1"),
    ],
)
def test_a_wrong_list_is_explained(workers, worker, message):
    with pytest.raises(InputError, match=message):
        read_cluster(workers, worker, {})


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "1", '{"cluster": {}}', "[" * 100_000),
        json.dumps({**CONFIG, "task": {"type": "ps", "index": 0}}),
        json.dumps({**CONFIG, "task": {"type": "worker", "index": "0"}}),
        json.dumps({**CONFIG, "cluster": {"worker": ["a:1", "b:2"], "ps": ["c:1"]}}),
        json.dumps({**CONFIG, "cluster": {"worker": "a:1"}}),
    ],
)
def test_a_malformed_tf_config_is_rejected(text):
    with pytest.raises(InputError, match="TF_CONFIG is not of the form"):
        read_cluster(None, None, {"TF_CONFIG": text})
