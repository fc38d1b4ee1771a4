"""What there is: every data set with its file, source, licence, units and known oddities.

`file` is relative to the data folder. The digest of a set is the SHA-256 of the content (labels and numbers, or text),
not of the file: the same data packed differently has the same digest, so a download can be told from a changed one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nova.datasets.digests import DIGESTS
from nova.model.errors import InvalidInput

Kind = Literal["latency", "series", "pairs", "coordinates", "nodes", "sensors"]
Form = Literal["matrix", "nested", "points", "text"]

GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Origin:
    """Where the public original lies and how it is written."""

    repository: str
    paths: tuple[str, ...]
    form: Form
    """`matrix`: delimited square matrix, with or without labels; `nested`: JSON {data: {from: {to: ms}}}; `points`: a
    delimited table of coordinates; `text`: taken as it is."""
    commit: str = "HEAD"

    def urls(self, base: str = GITHUB) -> list[str]:
        """One address per file."""
        return [f"{base}/{self.repository}/{self.commit}/{path}" for path in self.paths]


@dataclass(frozen=True)
class Rules:
    """What cleaning a matrix needs."""

    missing: tuple[float, ...] = (0.0,)
    """Values that mean "not measured". Negative values and NA always do."""
    halve: bool = False
    """Entries are the sum of both directions."""
    measured_once: bool = True
    """Leave out nodes that were never measured: dead ones."""


@dataclass(frozen=True)
class Dataset:
    """One data set."""

    name: str
    kind: Kind
    what: str
    file: str
    size: str
    units: str
    source: str
    licence: str
    oddities: str = ""
    """What is wrong or surprising in the original, and what cleaning does about it."""
    nodes: str | None = None
    """File of the node table that belongs to it."""
    origin: Origin | None = None
    """None where no single public file holds the set; `source` then says where its parts lie."""
    rules: Rules = field(default_factory=Rules)

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return DIGESTS[self.name]


NOVA, NEMO = "xchatzil/NOVA", "xchatzil/NEMO"
ATLAS, FIT = "notebooks/datasets/atlas", "notebooks/datasets/FIT"
UNSTATED = "none stated"

DATASETS: tuple[Dataset, ...] = (
    Dataset(
        "ripe-atlas-723",
        "latency",
        "RIPE Atlas anchor mesh, 19.06.2023, IPv4",
        "latency/ripe-atlas-723.csv.gz",
        "723 × 723",
        "RTT ms, whole",
        f"{NOVA}:{ATLAS}/matrix_cleaned.csv; RIPE Atlas API",
        f"{UNSTATED} (RIPE Atlas data: RIPE terms)",
        "0 means missing or below 1 ms, and mostly missing: dropped. 104.225.15.170 and 45.86.126.73 have no entry at "
        "all: left out. 54 diagonal entries are not 0: ignored. Largest value 4,358: dropped as an outlier.",
        nodes="nodes/ripe-atlas-723.csv",
        origin=Origin(NOVA, (f"{ATLAS}/matrix_cleaned.csv",), "matrix"),
    ),
    Dataset(
        "ripe-atlas-419",
        "latency",
        "The paper's subset of ripe-atlas-723 (it says 418)",
        "latency/ripe-atlas-723.csv.gz",
        "419 × 419",
        "RTT ms, whole",
        f"rows of ripe-atlas-723 whose node table has row_in_419, from {NOVA}",
        f"{UNSTATED} (RIPE terms)",
        "As ripe-atlas-723; nothing is missing off the diagonal.",
        nodes="nodes/ripe-atlas-723.csv",
    ),
    Dataset(
        "ripe-atlas-631-hourly",
        "series",
        "RIPE Atlas anchor mesh, hours 0–11 of 02.07.2023",
        "latency/ripe-atlas-631-hourly-00-11.npz",
        "12 × 631 × 631",
        "RTT ms (original: sum of both directions)",
        f"{NOVA}:{ATLAS}/02072023/rtt_matrix/time-0…11.csv; RIPE Atlas API",
        UNSTATED,
        "Entries are rtt(i→j) + rtt(j→i): halved. 1 was filled in for missing, 0 means missing: dropped. Some entries "
        "hold one direction only, about half of the pair's other hours: dropped. Spikes (hour 7: 8,521 summed) above "
        "five times the pair's median and 500 ms: dropped.",
        nodes="nodes/ripe-atlas-631.csv",
        origin=Origin(NOVA, tuple(f"{ATLAS}/02072023/rtt_matrix/time-{h}.csv" for h in range(12)), "matrix"),
        rules=Rules(missing=(0.0, 1.0), halve=True),
    ),
    Dataset(
        "planetlab-490",
        "series",
        "PlanetLab all pairs, 18 time slots",
        "latency/planetlab-490-18slots.npz",
        "18 × 490 × 490",
        "RTT ms",
        "uofa-rzhu3/NetLatency-Data:PlanetLab; Zhu et al., IEEE/ACM ToN 25(2), 2017",
        "MIT",
        "No host names. Lone spikes up to 7.9 s: dropped where above five times the pair's median and 500 ms.",
        origin=Origin(
            "uofa-rzhu3/NetLatency-Data",
            tuple(f"PlanetLab/PlanetLabData_{i}" for i in range(1, 19)),
            "matrix",
            "c69682f921ab45ff8bf65e351ccf5526647688b4",
        ),
    ),
    Dataset(
        "planetlab-169",
        "latency",
        "PlanetLab, data set PL of NCSim (2011)",
        "latency/planetlab-169.csv.gz",
        "169 × 169",
        "RTT ms",
        f"{NEMO}:notebooks/datasets/PL_lat.csv; NCSim (Chen et al.)",
        f"{UNSTATED} (NCSim: MIT)",
        "The diagonal holds self-RTTs up to 216 ms and one −1: ignored. 30 % of the pairs differ by more than a tenth "
        "between directions: averaged.",
        origin=Origin(NEMO, ("notebooks/datasets/PL_lat.csv",), "matrix"),
    ),
    Dataset(
        "fit-433-measured",
        "latency",
        "FIT IoT-LAB, 428 M3 nodes and 5 gateways, round 0, measured pairs only",
        "latency/fit-433-measured.csv.gz",
        "433 × 433",
        "RTT ms",
        f"{NEMO}:{FIT}/all/all_0.csv; FIT IoT-LAB (Adjih et al. 2015)",
        UNSTATED,
        "82.7 % of the pairs were never measured (0): dropped. One round only; a pair swings by half over rounds.",
        nodes="nodes/fit.csv",
        origin=Origin(NEMO, (f"{FIT}/all/all_0.csv",), "matrix"),
    ),
    Dataset(
        "fit-433-filled",
        "latency",
        "The same, missing pairs filled with sums over gateways by the authors",
        "latency/fit-433-filled.csv.gz",
        "433 × 433",
        "RTT ms",
        f"{NEMO}:{FIT}/all/all_calc_0.csv",
        UNSTATED,
        "83 % of the entries are sums, not measurements: nearly a tree metric. Nothing dropped.",
        nodes="nodes/fit.csv",
        origin=Origin(NEMO, (f"{FIT}/all/all_calc_0.csv",), "matrix"),
    ),
    Dataset(
        "fit-a8-283",
        "latency",
        "FIT IoT-LAB, 275 A8, 3 Raspberry Pi 3 and 5 gateways, one round",
        "latency/fit-a8-283.csv.gz",
        "283 × 283",
        "RTT ms",
        f"{NEMO}:{FIT}/rtt_matrix/373470/round_0.csv",
        UNSTATED,
        "9.6 % missing (0 or NA): dropped.",
        nodes="nodes/fit.csv",
        origin=Origin(NEMO, (f"{FIT}/rtt_matrix/373470/round_0.csv",), "matrix"),
    ),
    Dataset(
        "fit-rounds",
        "pairs",
        "FIT IoT-LAB, repeated pings per pair at four sites",
        "latency/fit-rounds.csv.gz",
        "250,541 rows",
        "RTT ms",
        f"{NEMO}:{FIT}/results_{{site}}.json (Lille is absent)",
        UNSTATED,
        "16 % of the pings were lost (NA, nearly all in Grenoble): dropped.",
    ),
    Dataset(
        "aws-regions-32",
        "latency",
        "AWS regions, cloudping.co P50 over a year, 29.05.2025",
        "latency/aws-regions-32.csv",
        "32 × 32",
        "RTT ms",
        "oaustegard/oaustegard.github.io:web-utilities/aws-ping-p50-1y.json; cloudping.co",
        "Apache-2.0 (repository)",
        "The diagonal is the RTT within a region (1.2–8.2 ms): ignored. Directions differ: averaged.",
        nodes="nodes/aws-regions.csv",
        origin=Origin(
            "oaustegard/oaustegard.github.io",
            ("web-utilities/aws-ping-p50-1y.json",),
            "nested",
            "4a1414dbf7163c4299fa201d140d3d9e00133544",
        ),
    ),
    Dataset(
        "aws-regions-21",
        "latency",
        "AWS regions, older snapshot (12.2024)",
        "latency/aws-regions-21.csv",
        "21 × 21",
        "RTT ms",
        "relab/hotstuff:cmd/latencygen/latencies/aws.csv (looks like cloudping.co)",
        "MIT",
        "As aws-regions-32.",
        origin=Origin(
            "relab/hotstuff",
            ("cmd/latencygen/latencies/aws.csv",),
            "matrix",
            "edc0f39a3d3e1c91e2698474ae7b300936ad2ddc",
        ),
    ),
    Dataset(
        "ripe-atlas-country-2025",
        "pairs",
        "Country to country, 2.5·10⁹ RIPE Atlas pings of 5 days, 03–04.2025",
        "latency/ripe-atlas-country-2025.csv.gz",
        "6,827 rows",
        "RTT ms",
        "input-output-hk/ouroboros-leios:data/internet/country_rtt_stat.csv.gz",
        UNSTATED,
        "rtt_max up to 3,592,381 and rtt_min 0: use the mean. 187 pairs have one ping and no deviation.",
        origin=Origin(
            "input-output-hk/ouroboros-leios",
            ("data/internet/country_rtt_stat.csv.gz",),
            "text",
            "73c3b6b49cec325a871617c4242ee7c6b13bae4d",
        ),
    ),
    Dataset(
        "king-1740",
        "coordinates",
        "King: 1,740 DNS servers, the artifact's Vivaldi coordinates",
        "coordinates/king-1740.csv",
        "1,740 × 2",
        "ms, whole",
        f"{NOVA}:notebooks/datasets/vivaldi_king.txt",
        UNSTATED,
        "75 nodes share a place with another. The measured matrix is not public here.",
        origin=Origin(NOVA, ("notebooks/datasets/vivaldi_king.txt",), "points"),
    ),
    Dataset(
        "planetlab-335",
        "coordinates",
        "PlanetLab (NCSim Toread), the artifact's Vivaldi coordinates",
        "coordinates/planetlab-335.csv",
        "335 × 2",
        "ms",
        f"{NOVA}:notebooks/datasets/PL_coords.txt",
        UNSTATED,
        "The measured matrix is not public here.",
        origin=Origin(NOVA, ("notebooks/datasets/PL_coords.txt",), "points"),
    ),
    Dataset(
        "fit-433-vivaldi",
        "coordinates",
        "FIT IoT-LAB, the artifact's Vivaldi coordinates of fit-433-filled",
        "coordinates/fit-433.csv",
        "433 × 2",
        "ms",
        f"{NOVA}:{FIT}/coords/FIT0_calc_coords.csv",
        UNSTATED,
        "Fits the filled matrix (Spearman 0.82), hardly the measured pairs (0.09).",
        nodes="nodes/fit.csv",
        origin=Origin(NOVA, (f"{FIT}/coords/FIT0_calc_coords.csv",), "points"),
    ),
    Dataset(
        "ripe-atlas-419-vivaldi",
        "coordinates",
        "RIPE Atlas, the artifact's Vivaldi coordinates of the 419 subset",
        "coordinates/ripe-atlas-419.csv",
        "419 × 2",
        "ms",
        f"{NOVA}:{ATLAS}/time-0_2d.csv",
        UNSTATED,
        "Median absolute error 12 ms against the measured subset.",
        origin=Origin(NOVA, (f"{ATLAS}/time-0_2d.csv",), "points"),
    ),
    Dataset(
        "planetlab-469-geo",
        "nodes",
        "469 PlanetLab hosts with latitude and longitude",
        "nodes/planetlab-469-geo.csv",
        "469 rows",
        "degrees",
        f"{NOVA}:notebooks/datasets/planetlab.txt",
        UNSTATED,
        "Not a latency space, though the published scripts use it as one; its labels are wrong.",
    ),
    Dataset(
        "nova-bmp280",
        "sensors",
        "Two BMP280 sensors, the artifact's left stream",
        "sensors/nova-bmp280-29791.csv.gz",
        "156,410 rows",
        "°C",
        f"{NOVA}:…/JoinData/normalized/left*_full.csv; Sensor.Community",
        "Apache-2.0 (code), ODbL/DbCL (data)",
        "Temperature, though the paper says pressure; the timestamp is a counter. −142.36 is a sensor fault (18.7 % of "
        "sensor 64394): dropped.",
    ),
    Dataset(
        "nova-dht22",
        "sensors",
        "Two DHT22 sensors, the artifact's right stream",
        "sensors/nova-dht22-65817.csv.gz",
        "234,614 rows",
        "% relative humidity",
        f"{NOVA}:…/JoinData/normalized/right*_full.csv; Sensor.Community",
        "Apache-2.0 (code), ODbL/DbCL (data)",
        "The timestamp is a counter.",
    ),
    Dataset(
        "aberdeen-bme280",
        "sensors",
        "Four BME280 sensors in Aberdeen, 07.2018–05.2019",
        "sensors/aberdeen-bme280-2018-2019.csv.gz",
        "490,021 rows",
        "Pa, °C, %",
        "watty62/abdn_air_quality:data/big_dump/done (one file per day and sensor); archive.luftdaten.info",
        "ODbL/DbCL (repository MIT)",
        "Gaps up to 30 days; 4 empty values: kept as null.",
    ),
    Dataset(
        "aberdeen-dht22",
        "sensors",
        "Twenty DHT22 sensors in Aberdeen, 07.2018–05.2019",
        "sensors/aberdeen-dht22-2018-2019.csv.gz",
        "1,363,910 rows",
        "°C, %",
        "watty62/abdn_air_quality:data/big_dump/done (one file per day and sensor); archive.luftdaten.info",
        "ODbL/DbCL (repository MIT)",
        "15 of the sensors start in 03.2019; gaps up to 30 days.",
    ),
)

SENSOR_FILES: dict[str, tuple[str, ...]] = {
    "nova-bmp280": ("sensors/nova-bmp280-29791.csv.gz", "sensors/nova-bmp280-64394.csv.gz"),
    "nova-dht22": ("sensors/nova-dht22-65817.csv.gz", "sensors/nova-dht22-76099.csv.gz"),
}
"""Archives of more than one file."""


def files_of(dataset: Dataset) -> tuple[str, ...]:
    """The files a set consists of, without its node table."""
    return SENSOR_FILES.get(dataset.name, (dataset.file,))


def find(name: str) -> Dataset:
    """The data set of that name."""
    for dataset in DATASETS:
        if dataset.name == name:
            return dataset
    raise InvalidInput(f"no data set {name!r}; `nova data list` names them: {', '.join(d.name for d in DATASETS)}")
