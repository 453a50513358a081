"""The whole of `make analyze` on a study of 5,000 prompts with 2 million token rows.

That is, from Parquet files to answers, their tables, the figures, the page and the summary.

The tables are those of the tests' synthetic study, written as a run directory in a temporary place. Prints the seconds
(`analysis_2m_rows_s`) and the peak memory of the process that does it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from _processes import figure, peak_mib

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from synthetic import CATEGORIES, Plan, make_tables  # type: ignore[import-not-found]  # tests/ is on the path at run time only

from specstudy.tables.schema import schema_of

N_PROMPTS = 5000


def write_run(directory: Path, n_prompts: int) -> int:
    """Write a run's tables; returns the rows of the two token tables together."""
    plan = Plan(n_per_category=n_prompts // len(CATEGORIES), n_answer_tokens=130, n_content_tokens=60)
    tables = make_tables(plan)
    for name, frame in tables.items():
        path = directory / "tables" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = pa.Table.from_pandas(frame, schema=schema_of(name), preserve_index=False)
        pq.write_table(rows, path, compression="zstd", write_page_checksum=True)
    for name in ("manifest.json", "config.yaml"):
        (directory / name).write_text("{}\n", encoding="utf-8")
    return len(tables["decode_tokens"]) + len(tables["spec_tokens"])


def measure(directory: Path) -> None:
    """Do what `make analyze` does with the run, and print what it took."""
    begun_s = time.perf_counter()
    from specstudy.config import StudyConfig
    from specstudy.running.answer import answer

    answer(directory, StudyConfig())
    figure("analysis_2m_rows_s", time.perf_counter() - begun_s)
    figure("analysis_2m_rows_peak_gib", peak_mib() / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=N_PROMPTS)
    parser.add_argument("--write", type=Path, help="only write the tables there")
    parser.add_argument("--read", type=Path, help="only measure the run that lies there")
    options = parser.parse_args()
    if options.read:
        measure(options.read)
    elif options.write:
        print(f"{write_run(options.write, options.prompts)} token rows in {options.write}")
    else:
        # The tables are made by another process: its memory is not that of the analysis.
        import subprocess

        with tempfile.TemporaryDirectory() as place:
            for mode in ("--write", "--read"):
                subprocess.run([sys.executable, __file__, mode, place, "--prompts", str(options.prompts)], check=True)


if __name__ == "__main__":
    main()
