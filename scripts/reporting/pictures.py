"""The pictures of a report, as SVG. Colours are those of Okabe and Ito, which the colour-blind can
tell apart; markers, dashes and hatches differ as well, so that a print in grey can be read."""

import io

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.hashsalt": "perdure", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False})

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib import ticker  # noqa: E402

from bench_stats import median_interval  # noqa: E402
from reporting import papers, plan  # noqa: E402

COLOURS = dict(zip(plan.ENGINES, ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
                   strict=True))
OTHERS = ("#000000", "#666666", "#999999", "#BBBBBB")
MARKERS = dict(zip(plan.ENGINES, "osD^vP", strict=True))
PAPER = {"marker": "*", "markerfacecolor": "white", "markeredgecolor": "black", "color": "black",
         "linestyle": "none", "markersize": 9}  # what a paper says
DASHES = dict(zip(plan.ENGINES, ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1))), strict=True))


def svg(figure, description):
    """The figure as the text of an <svg> element with a description for those who cannot see it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    body = text.getvalue()
    body = body[body.index("<svg"):]
    end = body.index(">")
    return f'{body[:end]} role="img">\n<title>{description}</title>{body[end + 1:]}'


def below(figure, axis):
    """One legend for all panels."""
    figure.tight_layout()
    figure.legend(*axis.get_legend_handles_labels(), loc="upper center", ncols=6,
                  bbox_to_anchor=(0.5, 0))


def in_words(low, high):
    if high is None:
        return f"at least {low:.2f}"
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def short(number):
    for size, letter in ((10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return str(number)


def engines_of(results, group):
    return [engine for engine in group.engines if results.turns(f"{group.name}/{engine}")]


def bars(results, group, phases, description):
    """A panel for each phase; a bar for each engine, perdure's in colour, with the interval."""
    engines = engines_of(results, group)
    size = (2.6 * len(phases), 0.24 * len(engines) + 1)
    figure, axes = plt.subplots(1, len(phases), figsize=size, sharey=True)
    places = range(len(engines))
    for axis, phase in zip(axes, phases):
        for place, engine in zip(places, engines):
            values = results.values(f"{group.name}/{engine}", phase)
            if not values:
                continue
            median, lower, upper = median_interval(values)
            ours = engine in plan.ENGINES
            axis.barh(place, median, color=COLOURS.get(engine, "#DDDDDD"), edgecolor="black",
                      linewidth=0.5, hatch="" if ours else "///")
            if lower > 0:
                axis.plot((lower, upper), (place, place), color="black", linewidth=1)
        axis.set_title(phase.replace("_", " "))
        axis.set_xlabel("M operations/s")
        axis.set_yticks(list(places), engines)
        axis.grid(axis="y", visible=False)
    axes[0].invert_yaxis()
    figure.tight_layout()
    return svg(figure, description)


def latencies(results, group):
    """The share of operations that a latency exceeds, by phase: its scale shows the tail."""
    phases = ("insert", "read", "update")
    figure, axes = plt.subplots(1, len(phases), figsize=(10, 3), sharey=True)
    for axis, phase in zip(axes, phases):
        for engine in plan.ENGINES:
            turns = results.turns(f"{group.name}/{engine}")
            rows = [row for row in (turns[0]["phases"] if turns else ())
                    if row["name"] == phase and "latency_ns" in row]
            if not rows:
                continue
            points = [(ns, 1 - share) for share, ns in rows[0]["latency_ns"] if share < 1]
            axis.plot(*zip(*points), color=COLOURS[engine], linestyle=DASHES[engine], label=engine)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(phase)
        axis.set_xlabel("latency, ns")
    axes[0].set_ylabel("share of operations that take longer")
    below(figure, axes[0])
    return svg(figure, "Latencies of insert, read and update, one thread: for each latency the "
                       "share of the operations that take longer")


def curves(groups, xs, phases, value, labels, description, logarithmic=False):
    """A panel for each phase, a curve for each engine through value(group, engine, phase), which is
    None where nothing was measured. `labels`: of both axes."""
    figure, axes = plt.subplots(1, len(phases), figsize=(3.3 * len(phases), 3), squeeze=False)
    for axis, phase in zip(axes[0], phases):
        for engine in plan.ENGINES:
            points = []
            for x, group in zip(xs, groups):
                y = value(group, engine, phase)
                if y is not None:
                    points.append((x, y))
            if points:
                axis.plot(*zip(*points), color=COLOURS[engine], linestyle=DASHES[engine],
                          marker=MARKERS[engine], markersize=4, label=engine)
        axis.set_xscale("log")
        axis.set_xticks(xs, [short(x) for x in xs])
        axis.minorticks_off()
        axis.set_title(phase.replace("_seconds", "").replace("_", " "))
        axis.set_xlabel(labels[0])
        axis.set_ylabel(labels[1])
        if logarithmic:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
    below(figure, axes[0][0])
    return svg(figure, description)


def costs(results, group):
    fields = (("flushes_per_op", "write-backs"), ("fences_per_op", "fences"),
              ("bytes_written_per_op", "bytes stored"))
    phases = ("insert", "update", "delete")
    hatches = dict(zip(phases, ("", "///", "...")))
    engines = [engine for engine in plan.ENGINES if results.turns(f"{group.name}/{engine}")]
    figure, axes = plt.subplots(1, len(fields), figsize=(10, 2.8))
    for axis, (field, name) in zip(axes, fields):
        for number, phase in enumerate(phases):
            heights = [results.median(f"{group.name}/{engine}", phase, field) or 0
                       for engine in engines]
            axis.bar([place + 0.27 * (number - 1) for place in range(len(engines))], heights, 0.27,
                     color=("#0072B2", "#E69F00", "#DDDDDD")[number], edgecolor="black",
                     linewidth=0.5, hatch=hatches[phase], label=phase)
        stated = [(place - 0.27, papers.COSTS[engine, field])
                  for place, engine in enumerate(engines) if (engine, field) in papers.COSTS]
        if stated:
            axis.plot(*zip(*stated), label="insert, its paper", **PAPER)
        axis.set_xticks(range(len(engines)), engines, rotation=30)
        axis.set_title(f"{name} for each operation")
    below(figure, axes[0])
    return svg(figure, "Write-backs, fences and bytes stored for each insert, update and delete")


def span(axis, low, high, place, ends, line, **marker):
    """A line from `low` to `high`, and a marker at each of the `ends`."""
    axis.plot((low, high), (place, place), **line)
    axis.plot(ends, [place] * len(ends), **marker)


def ratios(paper, tables):
    """A row for each claim of a paper: our ratio to the baseline with its range, and beneath it the
    paper's."""
    mark = {"marker": MARKERS[paper.engine], "color": COLOURS[paper.engine],
            "markeredgecolor": "black", "linestyle": "none"}
    figure, axis = plt.subplots(figsize=(8, 0.45 * len(paper.claims) + 1))
    axis.plot([], [], label="ours, with its range", **mark)
    axis.plot([], [], label="the paper (with an arrow: at least)", **PAPER)
    labels, words = [], []
    for place, claim in enumerate(paper.claims):
        ours = claim.ours(tables)
        labels.append(claim.label if ours else f"{claim.label}\n(ours: not measured)")
        words.append(f"{' '.join(labels[-1].split())}: the paper {in_words(claim.low, claim.high)}")
        if ours:
            ends = [ours.low, ours.high] if ours.middle is None else [ours.middle]
            span(axis, ours.low, ours.high, place - 0.14, ends,
                 {"color": COLOURS[paper.engine], "linewidth": 3}, **mark)
            words[-1] += f", ours {in_words(ends[0], ends[-1])}"
        if claim.high is None:
            axis.annotate("", (claim.low * 1.3, place + 0.2), (claim.low, place + 0.2),
                          arrowprops={"arrowstyle": "->"})
        high = claim.high or claim.low
        span(axis, claim.low, high, place + 0.2, sorted({claim.low, high}),
             {"color": "black", "linewidth": 1}, **PAPER)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(
        ticker.LogLocator(subs=(1, 2, 5) if high > 50 * low else (1, 1.5, 2, 3, 5, 7)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.set_yticks(range(len(labels)), labels)
    axis.grid(axis="y", visible=False)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.set_xlabel(paper.baseline + "\nright of 1: ours is better")
    below(figure, axis)
    return svg(figure, f"{paper.title}, ratios to baselines. " + "; ".join(words))


def of_papers(tables):
    """[(heading, text, svg)] of the papers' claims."""
    return [(f"Beside the paper: {paper.title}",
             "Filled: measured here, with its range (docs/design/evaluation.md). Hollow: what the "
             f"paper says of its own machine and sizes. docs/papers/{paper.page}.md has the "
             "differences.", ratios(paper, tables)) for paper in papers.PAPERS]


def all_pictures(results, groups):
    """[(heading, text, svg)], in the order of the page."""
    named = {group.name: group for group in groups}
    phases = ("insert", "read", "read_missing", "update", "delete")
    made = []
    for name in ("integers_1", "integers_2"):
        group = named[name]
        made.append((group.title, f"{group.records:,} entries. Hatched bars: other libraries, most "
                     "of them without any persistence. A line: the interval of the median.",
                     bars(results, group, phases, f"Rates of all engines: {group.title}")))
    made.append((named["scans"].title, "`scan mixed` inserts a new key at every tenth operation.",
                 bars(results, named["scans"], ("scan", "scan_mixed"), "Rates of scans")))
    made.append((named["stores"].title, f"{named['stores'].records:,} entries: few, because some "
                 "are slow.", bars(results, named["stores"], phases, "Rates of stores in files")))
    for group in (group for group in groups if "shared" in group.tags):
        made.append((group.title, f"{group.records:,} entries.",
                     bars(results, group, ("read", "update"), group.title)))
    made.append(("Latencies, one thread", "A curve that falls early has short latencies; how far "
                 "it goes to the right at the bottom shows the tail.",
                 latencies(results, named["integers_1"])))
    def rate(group, engine, phase):
        return results.median(f"{group.name}/{engine}", phase)

    def milliseconds(group, engine, field):
        seconds = results.of_run(f"{group.name}/{engine}", field)
        return None if seconds is None else seconds * 1e3

    def distance(group, engine, phase):
        return results.distance(f"{group.name}/{engine}", engine, phase)

    sizes = [group for group in groups if "size" in group.tags]
    counts = [group.records for group in sizes]
    of_size = ("entries", "M operations/s")
    made.append(("Growth with size", "",
                 curves(sizes, counts, ("load", "read", "update"), rate, of_size,
                        "Rates of load, read and update by the number of entries")))
    made.append(("Distance to the limit", "The time of an operation by the least that it can take; "
                 "docs/benchmarks.md says what that is.",
                 curves([group for group in groups if "limit" in group.tags], counts,
                        tuple(plan.UNAVOIDABLE), distance, ("entries", "times the limit"),
                        "Times of insert, read, update and delete by their limit")))
    made.append(("Opening by size", "",
                 curves(sizes, counts, ("reopen_clean_seconds", "reopen_killed_seconds",
                                        "first_lookup_seconds"), milliseconds, ("entries", "ms"),
                        "Times of open after a close and after a kill, and of the first lookup",
                        logarithmic=True)))
    several = [group for group in groups if "threads" in group.tags]
    made.append(("Threads", "More threads than processors share them.",
                 curves(several, [group.threads for group in several], ("load", "read", "update"),
                        rate, ("threads", "M operations/s"),
                        "Rates of load, read and update by the number of threads")))
    made.append(("Costs", "A star: what the engine's paper says of an insert; PhaST's is without a "
                 "split.", costs(results, named["integers_1"])))
    return made
