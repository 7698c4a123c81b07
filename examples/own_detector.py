# SPDX-License-Identifier: Apache-2.0
"""A detector of your own: a carrier board whose maker writes the module into a file.

Here it is handed to `detect`. A package would register it under the entry point group `jetson_specdec.detectors`.
"""

from __future__ import annotations

from jetson_specdec import Evidence, Host, Observation, detect

WHERE = "/etc/acme-carrier"


class AcmeCarrier:
    """Reads `module=agx-orin-64gb` from the carrier's own file. Says nothing where there is none, and never raises."""

    name = "acme-carrier"
    priority = 50  # among sources of equal confidence the higher one wins; the device tree has 60

    def detect(self, host: Host) -> Evidence:
        text = host.read_text(WHERE) or ""
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "module" and value.strip():
                # A module alone is not taken for a Jetson: say that it is one, and of which family.
                facts = {"is_jetson": True, "family": "agx_orin", "module": value.strip()}
                return Evidence(
                    observations=tuple(
                        Observation(name=name, value=fact, source=WHERE, confidence="medium")
                        for name, fact in facts.items()
                    )
                )
        return Evidence()


if __name__ == "__main__":
    import tempfile
    from pathlib import Path

    from jetson_specdec import RecordedHost

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "root" / "etc").mkdir(parents=True)
        (Path(folder) / "root" / "etc" / "acme-carrier").write_text("module=agx-orin-64gb\n")
        board = detect(RecordedHost(folder), detectors=[AcmeCarrier()])
    print(board.module, board.sources["module"])
