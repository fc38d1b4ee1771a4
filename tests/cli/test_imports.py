"""Roads in: samples in the form that the tools write, and the tables that come of them. `samples/README.md` says which
were recorded, and how.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from builders import invoke, invoke_json
from nova.imports.kubernetes import quantity
from nova.imports.tables import host_of

SAMPLES = Path(__file__).parent / "samples"


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as content:
        return list(csv.DictReader(content))


def test_kubernetes_nodes(tmp_path: Path) -> None:
    told = invoke_json("import", "k8s", SAMPLES / "kubectl-nodes.json", "-o", tmp_path, "--per-core", "2000/s")
    assert told["tables"] == {str(tmp_path / "nodes.csv"): 4}
    assert "2 of 4 nodes are not ready" in told["warnings"][0]
    found = {row["id"]: row for row in rows(tmp_path / "nodes.csv")}
    assert found["gke-a-1"] | {"memory_gb": ""} == {
        "id": "gke-a-1", "capacity": "7840.0", "hosts": "true", "address": "10.132.0.5", "cores": "3.92",
        "memory_gb": "", "zone": "eu-west1-b", "region": "eu-west1", "instance_type": "e2-standard-4", "arch": "amd64",
    }  # fmt: skip
    assert [row["hosts"] for row in found.values()] == ["true", "true", "false", "false"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4.0),
        ("940m", 0.94),
        ("16Gi", 16 * 2.0**30),
        ("2890148Ki", 2890148 * 1024),
        ("1500000000n", 1.5),
        ("2e3", 2000.0),
        ("1.5T", 1.5e12),
        ("1Pi", 2.0**50),
        (".5", 0.5),
    ],
)
def test_kubernetes_quantities(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


def test_prometheus_names_nodes_by_their_addresses(tmp_path: Path) -> None:
    invoke("import", "k8s", SAMPLES / "kubectl-nodes.json", "-o", tmp_path)
    told = invoke_json("import", "prometheus", SAMPLES / "prometheus-vector.json", "-o", tmp_path)
    assert rows(tmp_path / "rtt.csv") == [
        {"from": "gke-a-1", "to": "gke-a-2", "rtt_ms": "12.3"},
        {"from": "gke-a-1", "to": "gke-b-1", "rtt_ms": "91.2"},
        {"from": "gke-a-2", "to": "gke-b-1", "rtt_ms": "89.1"},
    ]
    failed, whole = told["warnings"]
    assert failed == "1 failed or empty measurements left out"
    assert "probe_duration_seconds counts resolving and connecting, too" in whole


def test_prometheus_without_a_unit_asks_for_it(tmp_path: Path) -> None:
    file = SAMPLES / "prometheus-matrix.json"
    told = invoke("import", "prometheus", file, "-o", tmp_path)
    assert told.exit_code == 2
    assert "give --unit s or --unit ms" in told.stderr
    assert invoke("import", "prometheus", file, "-o", tmp_path, "--unit", "ms").exit_code == 0
    assert rows(tmp_path / "rtt.csv") == [{"from": "a", "to": "b", "rtt_ms": "11.0"}]
    told = invoke("import", "prometheus", file, "-o", tmp_path, "--unit", "ms", "--from-label", "pod")
    assert "name it with --from-label" in told.stderr


def test_of_a_probe_s_phases_the_round_trip_counts(tmp_path: Path) -> None:
    told = invoke_json("import", "prometheus", SAMPLES / "prometheus-icmp.json", "-o", tmp_path)
    assert rows(tmp_path / "rtt.csv") == [{"from": "10.132.0.5", "to": "10.132.0.6", "rtt_ms": "11.7"}]
    assert told["warnings"] == ["2 series of other phases than rtt or connect left out"]


def test_recorded_blackbox_probes_leave_out_who_does_not_answer(tmp_path: Path) -> None:
    told = invoke_json("import", "prometheus", SAMPLES / "prometheus-blackbox.json", "-o", tmp_path)
    assert [(row["from"], row["to"]) for row in rows(tmp_path / "rtt.csv")] == [
        ("gw-1", "127.0.0.2"), ("gw-1", "127.0.0.3"), ("gw-2", "127.0.0.1"),
    ]  # fmt: skip
    assert all(0.01 < float(row["rtt_ms"]) < 1 for row in rows(tmp_path / "rtt.csv"))
    assert told["warnings"] == [
        "1 failed or empty measurements left out",
        "8 series of other phases than rtt or connect left out",
    ]


def test_who_probes_is_the_instance_where_another_label_says_whom(tmp_path: Path) -> None:
    invoke("import", "prometheus", SAMPLES / "prometheus-ping-exporter.json", "-o", tmp_path)
    assert rows(tmp_path / "rtt.csv") == [
        {"from": "10.132.0.5", "to": "10.132.0.6", "rtt_ms": "12.1"},
        {"from": "10.132.0.6", "to": "10.132.0.5", "rtt_ms": "12.3"},
    ]


def test_counters_are_no_latencies(tmp_path: Path) -> None:
    text = (SAMPLES / "prometheus-ping-exporter.json").read_text()
    (tmp_path / "sum.json").write_text(text.replace("ping_rtt_mean_seconds", "peers_response_time_s_sum"))
    told = invoke("import", "prometheus", tmp_path / "sum.json", "-o", tmp_path, "--unit", "s")
    assert told.exit_code == 2
    assert "rate(peers_response_time_s_sum[5m]) / rate(peers_response_time_s_count[5m])" in told.stderr


def test_goldpinger(tmp_path: Path) -> None:
    told = invoke_json("import", "goldpinger", SAMPLES / "goldpinger-check-all.json", "-o", tmp_path)
    assert rows(tmp_path / "rtt.csv") == [
        {"from": "10.132.0.5", "to": "10.132.0.6", "rtt_ms": "3.0"},
        {"from": "10.132.0.6", "to": "10.132.0.5", "rtt_ms": "0.5"},
        {"from": "10.132.0.6", "to": "10.132.0.7", "rtt_ms": "12.0"},
    ]
    assert told["warnings"][0].startswith("2 checks failed")
    assert told["warnings"][1].startswith("2 checks took less than 1 ms: taken as 0.5 ms")


def test_consul_coordinates_are_ms_and_plan_as_they_are(tmp_path: Path) -> None:
    told = invoke_json("import", "consul", SAMPLES / "consul-coordinates.json", "-o", tmp_path, "--capacity", "50/s")
    places = {row["id"]: row for row in rows(tmp_path / "nodes.csv")}
    assert (places["gw-1"]["x0"], places["gw-1"]["height"]) == ("-0.0618123", "0.451429")
    assert places["hq"]["height"] == "0.0"
    assert places["hq"]["capacity"] == "50.0"
    unsure, above = told["warnings"]
    assert "2 agents are not sure" in unsure
    assert "2 agents have adjustments that outweigh their heights" in above
    assert "up to 0.44 ms above" in above
    for a, b, rtt in (("gw-1", "hq", 1.106), ("gw-1", "fog", 1.456), ("fog", "hq", 0.057)):  # as `consul rtt` has them
        ours = math.dist(*([float(places[node][f"x{k}"]) for k in range(8)] for node in (a, b)))
        assert rtt - 0.001 <= ours + sum(float(places[node]["height"]) for node in (a, b)) <= rtt + 0.44
    for name, node in (("a", "gw-1"), ("b", "fog")):
        (tmp_path / f"{name}.csv").write_text(f"id,node,rate\n{name}1,{node},5\n")
    (tmp_path / "scenario.yaml").write_text(
        "nova: 1\nnodes: nodes.csv\nstreams: {a: {sources: a.csv}, b: {sources: b.csv}}\n"
        "queries: [{id: q, left: a, right: b, window: 1s, sink: hq}]\n"
    )
    assert invoke("plan", tmp_path / "scenario.yaml", "-o", tmp_path / "plan").exit_code == 0


def test_consul_rtts(tmp_path: Path) -> None:
    told = invoke_json("import", "consul", SAMPLES / "consul-rtt.txt", "-o", tmp_path)
    assert rows(tmp_path / "rtt.csv") == [
        {"from": "gw-1", "to": "hq", "rtt_ms": "1.106"},
        {"from": "gw-1", "to": "fog", "rtt_ms": "1.456"},
        {"from": "fog", "to": "hq", "rtt_ms": "0.057"},
    ]
    assert told["warnings"] == ["1 lines that are no RTTs passed over"]
    place = {"Vec": [0.001, 0.002], "Error": 0.1, "Height": 1e-5, "Adjustment": 0}
    wide = [{"Datacenter": "dc1", "AreaID": "WAN", "Coordinates": [{"Node": "n1.dc1", "Coord": place}]}]
    file = tmp_path / "wide.json"
    file.write_text(json.dumps(wide))
    assert invoke("import", "consul", file, "-o", tmp_path).exit_code == 0
    assert rows(tmp_path / "nodes.csv")[0]["id"] == "n1.dc1"
    file.write_text(json.dumps([*wide, {**wide[0], "AreaID": "other"}]))
    assert "cannot be compared" in invoke("import", "consul", file, "-o", tmp_path).stderr
    file.write_text('[{"Node": "hq", "Address": "127.0.0.12", "Datacenter": "dc1"}]')  # /v1/catalog/nodes
    assert "/v1/coordinate/nodes expected" in invoke("import", "consul", file, "-o", tmp_path).stderr


@pytest.mark.parametrize("file", ["hosts", "ansible-hosts.json"])
def test_an_ini_inventory_reads_as_ansible_itself_tells_it(file: str, tmp_path: Path) -> None:
    assert invoke("import", "ansible", SAMPLES / file, "-o", tmp_path, "--capacity", "100/s").exit_code == 0
    found = {row["id"]: (float(row["capacity"]), row["address"], row["group"]) for row in rows(tmp_path / "nodes.csv")}
    assert found == {
        "bastion.example.org": (100.0, "", ""),
        "edge-1": (400.0, "192.0.2.11", "edge"),
        "edge-2": (500.0, "", "edge"),
        "core-01": (9000.0, "192.0.2.20", "core"),
        "core-03": (9000.0, "192.0.2.20", "core"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a:wrong]\nx\n", "line 1"),
        ("[a]\nx[1:999999]\n", "1 to 100,000 hosts"),
        ("[a]\nx[9:1]\n", "1 to 100,000 hosts"),
        ("[a]\nx 'y\n", "unclear quotes"),
        ("[a:children]\nb\n[b:children]\na\n[c]\nx", "a child of itself"),
        ("[a:vars]\nx\n", "name=value"),
    ],
)
def test_a_broken_ini_inventory_is_told(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(text)
    told = invoke("import", "ansible", tmp_path / "hosts", "-o", tmp_path / "out")
    assert told.exit_code == 2, told.output
    assert message in told.stderr


@pytest.mark.parametrize("file", ["ansible-inventory.json", "ansible-export.json", "inventory.yaml"])
def test_ansible(file: str, tmp_path: Path) -> None:
    assert invoke("import", "ansible", SAMPLES / file, "-o", tmp_path, "--capacity", "500/s").exit_code == 0
    found = {row["id"]: row for row in rows(tmp_path / "nodes.csv")}
    assert {name: float(row["capacity"]) for name, row in found.items()} == {
        "edge-1": 400,
        "edge-2": 500,
        "core-1": 9000,
    }
    assert found["edge-1"]["address"] == "192.0.2.11"
    assert found["core-1"]["group"] == "core"


def test_an_inventory_script_without_variables(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"edge": ["e1", "e2"], "core": {"hosts": ["c1"], "vars": {}}}))
    assert invoke("import", "ansible", tmp_path / "script.json", "-o", tmp_path).exit_code == 0
    assert [(row["id"], row["group"]) for row in rows(tmp_path / "nodes.csv")] == [
        ("e1", "edge"), ("e2", "edge"), ("c1", "core"),
    ]  # fmt: skip


def test_groups_that_would_never_end_are_told(tmp_path: Path) -> None:
    """Two groups on each of 40 levels, both children of both above: a million million ways down."""
    groups = {f"{side}{k}": {"children": [f"a{k + 1}", f"b{k + 1}"]} for k in range(40) for side in "ab"}
    for name, document in (("wide", groups), ("self", {"a": {"children": ["a"]}})):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
        told = invoke("import", "ansible", tmp_path / f"{name}.json", "-o", tmp_path)
        assert told.exit_code == 2, told.output
        assert "nested too deep" in told.stderr or "child of itself" in told.stderr


def test_offsets_from_consumer_groups(tmp_path: Path) -> None:
    before, after = (SAMPLES / f"consumer-groups-{when}.txt" for when in ("before", "after"))
    told = invoke("import", "kafka", before, after, "--seconds", 30, "--node", "broker", "-o", tmp_path)
    assert told.exit_code == 0, told.output
    assert [row["rate"] for row in rows(tmp_path / "orders.csv")] == ["30.0", "0.0", "0.0"]
    assert rows(tmp_path / "payments.eu.csv") == [{"id": "payments.eu-0", "node": "broker", "rate": "2.0"}]


def test_members_of_a_consumer_group_that_read_nothing(tmp_path: Path) -> None:
    header = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    for name, end in (("before", 50), ("after", 110)):
        lines = [header, f"g t 0 - {end} - c-1 /10.0.0.5 c", "g - - - - - c-2 /10.0.0.6 c"]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    files = (tmp_path / "before.txt", tmp_path / "after.txt")
    assert invoke("import", "kafka", *files, "--seconds", 60, "--node", "n", "-o", tmp_path).exit_code == 0
    assert rows(tmp_path / "t.csv") == [{"id": "t-0", "node": "n", "rate": "1.0"}]


def test_kafka_rates(tmp_path: Path) -> None:
    before, after, described, lost = (
        SAMPLES / f"{name}.txt"
        for name in ("offsets-before", "offsets-after", "topics-described", "topics-described-broker-lost")
    )
    told = invoke_json("import", "kafka", before, after, "--seconds", 30, "--describe", described, "-o", tmp_path)
    assert rows(tmp_path / "orders.csv") == [
        {"id": "orders-0", "node": "broker-1", "rate": "30.0"},
        {"id": "orders-1", "node": "broker-2", "rate": "0.0"},
        {"id": "orders-2", "node": "broker-1", "rate": "0.0"},
    ]
    assert rows(tmp_path / "payments.eu.csv") == [{"id": "payments.eu-0", "node": "broker-2", "rate": "2.0"}]
    assert "late-0" in told["warnings"][0]
    invoke("import", "kafka", before, after, "--seconds", 30, "--describe", lost, "-o", tmp_path)
    assert {row["node"] for row in rows(tmp_path / "orders.csv")} == {"broker-1"}
    swapped = invoke("import", "kafka", after, before, "--seconds", 60, "--node", "x", "-o", tmp_path)
    assert swapped.exit_code == 2
    assert "the offset went back" in swapped.stderr


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("k8s", {"items": []}, "kubectl get nodes"),
        ("k8s", {"kind": "PodList", "items": [{"kind": "Pod", "metadata": {"name": "p"}}]}, "a node expected"),
        (
            "k8s",
            {"items": [{"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "lots"}}}]},
            "a quantity such as",
        ),
        ("prometheus", {"status": "error"}, "an answer of Prometheus"),
        ("goldpinger", {}, "goldpinger's /check_all"),
        ("consul", [{"Node": "a", "Coord": {"Vec": ["x"]}}], "numbers of seconds"),
        ("ansible", {"all": {"hosts": {}}}, "no hosts here"),
        ("ansible", {"all": {"hosts": {"a\nb": {}}}}, "an id has no line breaks"),
    ],
)
def test_what_is_something_else_is_told(kind: str, content: object, message: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps(content))
    told = invoke("import", kind, file, "-o", tmp_path / "out")
    assert told.exit_code == 2, told.output
    assert message in told.stderr


def test_nodes_that_were_imported_before_and_are_damaged_are_told(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_bytes(b"id,address\na,\xff\n")
    told = invoke("import", "prometheus", SAMPLES / "prometheus-vector.json", "-o", tmp_path)
    assert told.exit_code == 2
    assert "nodes.csv, row 2: not UTF-8 text" in told.stderr


def test_a_table_of_consumer_groups_without_a_column_is_told(tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text("GROUP  PARTITION  LOG-END-OFFSET\na  0  5\n")
    told = invoke("import", "kafka", tmp_path / "before.txt", tmp_path / "before.txt", "--seconds", "5")
    assert told.exit_code == 2
    assert "before.txt, field line 1: no column TOPIC beside LOG-END-OFFSET" in told.stderr


def test_pools_and_the_owners_labels_of_kubernetes_nodes(tmp_path: Path) -> None:
    def node(name: str, labels: dict[str, str], cpu: str = "940m") -> dict[str, Any]:
        metadata, status = {"name": name, "labels": labels}, {"allocatable": {"cpu": cpu, "memory": "3.7G"}}
        return {"kind": "Node", "metadata": metadata, "status": status}

    nodes = [
        node("a", {"eks.amazonaws.com/nodegroup": "gpu", "gpu": "true", "capacity": "9", "region": "mine"}),
        node("b", {"cloud.google.com/gke-nodepool": "small", "topology.kubernetes.io/region": "west3", "region": "x"}),
    ]
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "List", "items": nodes}))
    invoke("import", "k8s", tmp_path / "nodes.json", "-o", tmp_path, "--per-core", "2000/s")
    a, b = rows(tmp_path / "nodes.csv")
    assert (a["capacity"], a["label_capacity"], a["cores"]) == ("1880.0", "9", "0.94")
    assert [(row["pool"], row["gpu"], row["region"]) for row in (a, b)] == [
        ("gpu", "true", "mine"),
        ("small", "", "west3"),
    ]


@pytest.mark.parametrize("field", ["spec.taints", "status.conditions", "status.addresses"])
def test_a_node_of_kubernetes_with_something_else_in_place_of_a_list_is_told(field: str, tmp_path: Path) -> None:
    nodes = json.loads((SAMPLES / "kubectl-nodes.json").read_text())
    part, name = field.split(".")
    nodes["items"][1].setdefault(part, {})[name] = 5
    (tmp_path / "nodes.json").write_text(json.dumps(nodes))
    told = invoke("import", "k8s", tmp_path / "nodes.json", "-o", tmp_path)
    assert told.exit_code == 2
    assert f"nodes.json, field items.1.{field}: a list expected (found '5')" in told.stderr


def test_addresses() -> None:
    assert [host_of(text) for text in ("a", "a:1", "http://a:1/x", "[2001:db8::1]:9115", "2001:db8::1")] == [
        "a", "a", "a", "2001:db8::1", "2001:db8::1",
    ]  # fmt: skip


def test_an_import_replaces_what_it_wrote_before(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "inventory.yaml", tmp_path)
    for _ in range(2):
        assert invoke("import", "ansible", tmp_path / "inventory.yaml", "-o", tmp_path / "out").exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["nodes.csv"]
