"""``lg2ar bench probe`` by its earlier name.

python benchmarks/probes.py --out results/probes.jsonl            # against scikit-learn, CPU
python benchmarks/probes.py --device cuda --real --out FILE       # the eight graph sets
"""

from __future__ import annotations

import sys

from lg2ar.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "probe"]
    main()
