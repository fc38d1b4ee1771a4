"""Sites of a plan side by side in one session, for tests."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from nova.spark.job.run import Settings
from nova.spark.sites.exchange import open_exchange
from nova.spark.sites.share import Share
from nova.spark.sites.site import Site, claimed


def side_by_side(spark: Any, made: list[Share], exchange: str, folder: Path) -> dict[str, Site]:
    sites: dict[str, Site] = {}
    failures: list[BaseException] = []

    def work(share: Share) -> None:
        own = folder / share.site
        try:
            way = open_exchange(exchange, own)
            with claimed(share.site, share.digest, own, way) as presence:
                site = sites[share.site] = Site(spark, share, Settings(own, until_end=True), way, presence)
                site.start()
                site.wait()
        except BaseException as failure:
            failures.append(failure)
            for other in list(sites.values()):
                other.stop()

    threads = [threading.Thread(target=work, args=(share,)) for share in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=400)
    if any(thread.is_alive() for thread in threads):
        for site in sites.values():
            site.stop()
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)
    return sites
