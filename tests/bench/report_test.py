"""The report: a stopped one goes on, its tables have medians and intervals, each of its commands
names engines and workloads that exist, and the papers' claims are those of the documents."""

import os
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("PERDURE_SOURCE_DIR",
                                   pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))
from engines import ENGINES  # noqa: E402
from reporting import page, papers, plan, power, results, tables  # noqa: E402

MACHINE = {"processor": "P", "processors": 2, "memory_gib": 1, "kernel": "6", "compiler": "g++ 12",
           "pools_on": "tmpfs", "commit": "abc", "sources": "1", "date": "2026-01-01",
           "calibration": {"persist_ns": 1.0, "load_ns": 2.0, "load_huge_ns": None,
                           "persist_huge_ns": None, "transfer_ns": 3.0, "sync_ns": 68000}}


def run_of(rate, **fields):
    phases = [{"name": name, "operations": 10, "wall_seconds": 0.5, "mops": rate,
               "p50_ns": 1, "p99_ns": 2, "p999_ns": 3, "max_ns": 4,
               "latency_ns": [[0.5, 1], [1, 4]], "flushes_per_op": 1,
               "fences_per_op": 1, "bytes_written_per_op": 64, "allocs_per_op": None}
              for name in plan.ALL_PHASES.split(",") + ["scan", "scan_mixed", "read_batch",
                                                        "update_many", "delete_many"]]
    return {"engine": "phast", "phases": phases, "missing": 0, "bytes_per_entry_pm": 24.0,
            "bytes_per_entry_dram": 6.0, "close_seconds": 0.1, "reopen_clean_seconds": 0.1,
            "reopen_killed_seconds": 0.2, "first_lookup_seconds": 0.3, **fields}


def finished(groups, path):
    """A report in which turn t of each engine has the rate 1 + t."""
    kept = results.Results(path)
    kept.begin(dict(MACHINE))
    for group in groups:
        for turn in range(group.turns):
            for engine in group.engines:
                kept.data["runs"].setdefault(
                    f"{group.name}/{engine}",
                    {"command": group.command(engine), "turns": []})["turns"].append(
                        results.shortened(run_of(1.0 + turn), group.latencies and turn == 0))
    return kept


class Resume(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "r" / "report.json"

    def begun(self, **changes):
        kept = results.Results(self.path)
        return kept, kept.begin({**MACHINE, **changes})

    def test_goes_on_after_the_last_turn(self):
        kept, went_on = self.begun()
        self.assertFalse(went_on)
        kept.add("g/phast", "command", results.shortened(run_of(1.0), True))
        kept, went_on = self.begun()
        self.assertTrue(went_on)
        self.assertEqual(len(kept.turns("g/phast")), 1)
        self.assertEqual(kept.turns("g/level"), [])

    def test_begins_anew_for_other_sources_or_after_the_end(self):
        kept, _ = self.begun()
        kept.add("g/phast", "command", run_of(1.0))
        kept, went_on = self.begun(sources="2")
        self.assertFalse(went_on)
        self.assertEqual(kept.turns("g/phast"), [])
        kept.machine["finished"] = True
        kept.add("g/phast", "command", run_of(1.0))
        self.assertFalse(self.begun(sources="2")[1])

    def test_its_own_results_are_no_other_sources(self):
        kept, _ = self.begun(commit="abc")
        kept.add("g/phast", "command", run_of(1.0))
        self.assertTrue(self.begun(commit="abc-dirty")[1])

    def test_keeps_only_what_it_shows(self):
        kept = results.shortened(run_of(1.0), False)
        self.assertNotIn("latency_ns", kept["phases"][0])
        self.assertNotIn("allocs_per_op", kept["phases"][0])
        self.assertIn("latency_ns", results.shortened(run_of(1.0), True)["phases"][0])

    def test_counts_lost_keys(self):
        kept, _ = self.begun()
        kept.add("g/phast", "command", run_of(1.0, missing=2, unexpected=1))
        kept.add("g/phast", "command", run_of(1.0))
        self.assertEqual(kept.lost(), 3)


class Documents(unittest.TestCase):
    def setUp(self):
        self.groups = plan.short()
        self.kept = finished(self.groups, "unused.json")

    def test_a_cell_has_an_interval_only_with_enough_turns(self):
        self.assertEqual(tables.cell([3.0, 1.0, 2.0]), "2.00")
        self.assertEqual(tables.cell([7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), "4.00 (1.00 to 7.00)")
        self.assertEqual(tables.cell([]), "")
        self.assertEqual(tables.significant(12.345), "12.3")

    def test_every_group_is_in_the_tables(self):
        text = tables.documents(self.kept, self.groups)
        for group in self.groups:
            self.assertIn(group.title, text)
        self.assertIn("| `phast` | 4.00 (1.00 to 7.00) |", text)
        self.assertNotIn("None", text)
        self.assertNotIn("inf", text)

    def test_the_limit_has_fences_and_lines(self):
        # 4 M/s are 250 ns; a fence of 1 ns, and one or two loads of 2 ns.
        self.assertAlmostEqual(self.kept.distance("integers_1/level", "level", "read"), 250 / 3)
        self.assertAlmostEqual(self.kept.distance("integers_1/phast", "phast", "read"), 250 / 5)
        self.assertIsNone(self.kept.distance("integers_1/none", "phast", "read"))

    def test_a_table_has_its_command(self):
        text = tables.documents(self.kept, self.groups)
        self.assertIn(self.groups[0].command(",".join(self.groups[0].engines)), text)

    def test_the_page_needs_nothing_from_outside(self):
        text = page.page(self.kept, self.groups, [("Costs & more", "a < b", "<svg></svg>")])
        self.assertIn('<section id="costs---more"><h2>Costs &amp; more</h2><p>a &lt; b</p>', text)
        self.assertIsNone(re.search(r'(src|href)="(?!#)', text))


class Power(unittest.TestCase):
    def setUp(self):
        self.groups = power.plan()
        self.kept = finished(self.groups, "unused.json")
        cuts = {"log_bytes": 22_000_000 * 64, "folds": 4, "fold_bytes": 22_000_000 * 96,
                "longest_stop_ns": 250_000}
        for run in self.kept.data["runs"].values():
            for turn in run["turns"]:
                turn["cuts"] = cuts

    def test_the_tables_have_every_row(self):
        text = power.documents(self.kept, self.groups)
        for group in self.groups[:5]:
            self.assertIn(group.title, text)
            for row in group.rows:
                rate = 2000 if group.threads <= 2 else 0.02  # 10 operations in half a second
                self.assertIn(f"| {row.name} | {row.loses} | {rate} |", text)
        self.assertIn("| 1 | 1.00 | 1.00 | 64 | 4 | 1.50 | 0.25 |", text)
        self.assertIn("0.068 ms", text)
        self.assertNotIn("None", text)

    def test_a_loss_has_a_place_in_the_picture(self):
        for group in self.groups:
            for row in group.rows:
                self.assertIn(row.loses, power.LOSSES)

    def test_a_row_is_named_once_and_its_options_come_last(self):
        for group in self.groups:
            self.assertEqual(len(set(group.engines)), len(group.engines))
            for row in group.rows:
                self.assertTrue(group.command(row.name).endswith(row.options))


def evaluation(table, program="ordered"):
    markers = "".join(f"<!-- {name}: begin -->\n{table if name == program else ''}"
                      f"<!-- {name}: end -->\n"
                      for name in ("ordered", "hash", "growing", "skiplist", "versions"))
    return papers.Tables(markers)


class Papers(unittest.TestCase):
    RATES = ("### Rates\n\n| map | a | b |\n| --- | --- | --- |\n"
             "| phast | 3.00 (2.00 to 4.00) | 8.0 |\n| X | 1.50 (1.00 to 2.00) | 0.5 |\n"
             "### By the others\n| map | a |\n|---|---|\n| X | **1.90** (3.10) |\n")

    def test_the_papers_numbers_are_those_of_their_pages(self):
        for paper in papers.PAPERS:
            text = (ROOT / f"docs/papers/{paper.page}.md").read_text()
            for claim in paper.claims:
                self.assertIn(claim.source, text)

    def test_the_tables_of_the_evaluations_have_our_ratios(self):
        tables = papers.Tables((ROOT / "docs/design/evaluation.md").read_text())
        for paper in papers.PAPERS:
            for claim in paper.claims:
                ours = claim.ours(tables)  # raises if a table, a row or a number is missing
                if ours is not None:
                    self.assertLessEqual(ours.low, ours.high)
                    self.assertGreater(ours.low, 0.01)
                    self.assertLess(ours.high, 1000)

    def test_a_ratio_has_the_range_of_both_rates(self):
        tables = evaluation(self.RATES)
        self.assertEqual(papers.rates("ordered", "Rates", "phast", "X", "a")(tables),
                         papers.Ratio(2.0, 1.0, 4.0))
        self.assertEqual(papers.rates("ordered", "Rates", "phast", "X", "b")(tables),
                         papers.Ratio(16.0, 16.0, 16.0))
        self.assertEqual(
            papers.rates("ordered", "Rates", "phast", "X", "a", "By the others")(tables),
            papers.Ratio(1.9, 1.0, 4.0))

    def test_what_has_not_been_run_is_no_error_and_what_is_missing_is(self):
        tables = evaluation(self.RATES)
        self.assertIsNone(papers.rates("hash", "Rates", "phast", "X", "a")(tables))
        for heading, row in (("Gone", "X"), ("Rates", "gone")):
            with self.assertRaises(LookupError):
                papers.rates("ordered", heading, "phast", row, "a")(tables)

    def test_percentages_become_ratios(self):
        tables = evaluation("### Times\n| keys | items | as |\n|---|---|---|\n"
                            "| a | 1 | 9 (-90.0%) |\n| a | 2 | 5.00 (-50.0%) |\n"
                            "|  | 2 | 8 (-20.0%) |\n| a | 4 | 1 (+0.0%) |\n", "skiplist")
        self.assertEqual(papers.percents("Times", "as", papers.middle_size)(tables),
                         papers.Ratio(None, 1.25, 2.0))
        gain = papers.percents("Times", "as", lambda rows: rows[1:2], saved=False)(tables)
        self.assertEqual(gain, papers.Ratio(0.5, 0.5, 0.5))

    def test_two_columns_of_one_name(self):
        tables = evaluation("### R\n| at | ratio | x | ratio |\n|---|---|---|---|\n"
                            "| 1 | 4.5 | 9 | 2.5 |\n| 2 | 1.60 to 1.74 | 9 | - |\n", "hash")
        self.assertEqual(papers.stated("hash", "R", ("ratio", "ratio 2"), at="1")(tables),
                         papers.Ratio(None, 2.5, 4.5))
        self.assertEqual(papers.stated("hash", "R", ("ratio",), at="2")(tables),
                         papers.Ratio(None, 1.6, 1.74))


class Plan(unittest.TestCase):
    def test_has_every_engine(self):
        self.assertEqual(sorted(plan.ENGINES), sorted(ENGINES))

    def test_names_only_what_the_programs_know(self):
        compare = (ROOT / "bench/compare/main.cc").read_text()
        work = (ROOT / "bench/workloads/work.cc").read_text()
        options = (ROOT / "bench/harness/options.cc").read_text()
        for make in plan.PLANS.values():
            groups = make()
            self.assertEqual(len({group.name for group in groups}), len(groups))
            for group in groups:
                for engine in set(group.engines) - set(plan.ENGINES):
                    self.assertIn(f'{{"{engine}", make_', compare)
                for phase in group.workload.split(","):
                    self.assertIn(f'{{"{phase}", ', work)
                for option in re.findall(r"--[a-z-]+", group.command("phast")):
                    self.assertIn(f'"{option}"', options)
        for group in power.plan():
            for row in group.rows:
                if row.engine not in plan.ENGINES:
                    self.assertIn(f'{{"{row.engine}", make_', compare)
                for option in re.findall(r"--[a-z-]+", group.command(row.name)):
                    self.assertIn(f'"{option}"', options)

    def test_half_an_hour_has_seven_turns(self):
        first = plan.short()[0]
        self.assertGreaterEqual(first.turns, 7)


if __name__ == "__main__":
    unittest.main()
