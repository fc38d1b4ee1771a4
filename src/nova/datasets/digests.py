"""SHA-256 of the content of each data set: see `nova.datasets.content`."""

from __future__ import annotations

DIGESTS: dict[str, str] = {
    "ripe-atlas-723": "bf963aa74cceab4cb725dfddfd6d7bb29a949e03522da76c5c30405abda82719",
    "ripe-atlas-419": "bf963aa74cceab4cb725dfddfd6d7bb29a949e03522da76c5c30405abda82719",
    "ripe-atlas-631-hourly": "f3bd65ec72283df955366d6d55a719cd3b19ae27c8738e36bd6ad39dcbc6d571",
    "planetlab-490": "741a5fd420574ebc301df076e6efe0947be020b18e6ef1190b2ebe9405251064",
    "planetlab-169": "24f6c344b1e3764aae9d64e9c13b336c5ae586db71b25ffdf799994ced99f5ab",
    "fit-433-measured": "af6b0c7f360ca3b61a850ba515b6ef9dcd660b49e9c553df46164855dac45f97",
    "fit-433-filled": "cb04ea7bf45ee1a2c2882f72f6e3f3f20e366ab55c78ed1c1903d012d4ef5d66",
    "fit-a8-283": "ff4a9509ec2cabe727cb6f3e1888d3f154e419b8bfbc7240a2b2879e05421a28",
    "fit-rounds": "a9999a7dccb698ad0361595e6cf52c757bd7baaa46d2496bd5b7f3db4a863c2a",
    "aws-regions-32": "86ad4c32d7f4031a284e0d03ddbb18a4d12099730f1f105988894ab9c513ef85",
    "aws-regions-21": "cecacd93769fdaaa2bc5ff69eb093ed176b937c631bcbd5a6046c5dfa5c465e9",
    "ripe-atlas-country-2025": "b884d150a3d84da400a74d9bf5d84717b35b8c87a80bf777493db57ba4d08785",
    "king-1740": "d13fdc3c30a2a715e04a9dd050c96accbb70cee2a7ba3f10a698a9a5890a50c4",
    "planetlab-335": "a2cac362df3f8fb7481dab6b972fae2e060e84c39762c0e8acdb9a982de041ac",
    "fit-433-vivaldi": "7c38f487b9ed7b82ab14381084e661a992e4ecb5b41175bbff042672d295e3d3",
    "ripe-atlas-419-vivaldi": "a610cfca27a74794ee50cf469631014776e8c063894e789d40e8ac9450123a25",
    "planetlab-469-geo": "e04891171e7365c6a8ab39846eb8f563eeec4e01914a5920b0e99f72cf8be83a",
    "nova-bmp280": "ce8545400d21dec9dec45478a1b0617be56ddfb441ea0d1ae3ab6ce64bb19107",
    "nova-dht22": "de3f3b91516b0aa7a1e2fad94409312d26a674716db79a7e8bae221c45ffb24c",
    "aberdeen-bme280": "0a2eb7edd9d918b12a52809007ae5b756fe389eff69f84821c957fc57204977e",
    "aberdeen-dht22": "4d40b2c96f2bb2aa635fa278ea9fba7ad0baddf21cc5188416a63a196cbf5f63",
}
