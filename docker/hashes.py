"""Requirements with hashes of what pip would install for the image: `pip install --report - ... | hashes.py`.

The hashes are of the files for this machine's processor and Python, as pip found them. Source: pip's
installation report, version 1.
"""

import json
import sys


def main() -> None:
    """Read a report from standard input, write requirements."""
    for item in sorted(json.load(sys.stdin)["install"], key=lambda item: item["metadata"]["name"].lower()):
        found = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if found:  # our own sources are a folder
            name, version = item["metadata"]["name"], item["metadata"]["version"]
            sys.stdout.write(f"{name}=={version} --hash=sha256:{found}\n")


if __name__ == "__main__":
    main()
