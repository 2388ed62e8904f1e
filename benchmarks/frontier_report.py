"""Tables and plot of benchmarks/frontier.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from optimum import optimum_at
from workloads import Point

SCANS = np.arange(1.5, 8.01, 0.5)
OURS = "payback"
# The patent limits a set; without a limit its strategy is a different one, and a better one.
WHOLE = "width, whole bucket"
# No write amplification below this is compared: whoever does nothing is as good.
LEAST = 0.05

# By strategy; by workload; by seed.
Of = dict[str, list[Point]]
Curves = dict[int, dict[str, Of]]


def best_at(points: list[Point], scan: float) -> float:
    """Least write amplification among points of at most this scan; infinite if there are none."""
    return min((point.write_amplification for point in points if point.scan <= scan), default=np.inf)


def best_other(of: Of, scan: float, whole: bool = True) -> float:
    """The least of all strategies but ours."""
    others = [name for name in of if not name.startswith(OURS) and (whole or name != WHOLE)]
    return min((best_at(of[name], scan) for name in others), default=np.inf)


def ratios(of: Of, whole: bool = True, ours: str = OURS) -> list[float | None]:
    """Ours to the best of the others at each of `SCANS`; None where there is nothing to compare."""
    found: list[float | None] = []
    for scan in SCANS:
        other, mine = best_other(of, scan, whole), best_at(of[ours], scan)
        found.append(mine / other if np.isfinite(mine) and LEAST < other < np.inf else None)
    return found


def geometric_mean(values: list[float | None]) -> float:
    """Of the values that are not None."""
    logs = [np.log(max(value, 1e-3)) for value in values if value is not None]
    return float(np.exp(np.mean(logs))) if logs else float("nan")


def greatest(values: list[float | None]) -> float:
    """Of the values that are not None."""
    return max((value for value in values if value is not None), default=float("nan"))


def compared(curves: Curves, workload: str) -> list[Of]:
    """A workload's curves, of the seeds with which the others have been measured too."""
    found = [of[workload] for of in curves.values() if workload in of]
    return [of for of in found if any(not name.startswith(OURS) for name in of)]


def shown(value: float) -> str:
    """Two decimals, or a dash where there is nothing to show."""
    return f"{value:.2f}" if np.isfinite(value) else "-"


def print_table(curves: Curves, best: list[tuple[float, float]]) -> None:
    """Mean write amplification at each scan, and the ratio of ours to the best of the others."""
    for workload in next(iter(curves.values())):
        seeds = compared(curves, workload)
        print(f"\n{workload:<32}" + "".join(f"{scan:7.1f}" for scan in SCANS))
        for name in seeds[0]:
            means = [np.mean([best_at(of[name], scan) for of in seeds if name in of]) for scan in SCANS]
            print(f"  {name:<30}" + "".join(f"{mean:7.2f}" for mean in means))
        if workload == "uniform, sorted":
            print(f"  {'optimum':<30}" + "".join(f"{optimum_at(best, scan):7.2f}" for scan in SCANS))
        rows = [ratios(of) for of in seeds]
        for title, figure in (("mean", geometric_mean), ("worst", greatest)):
            cells = [shown(figure([row[nth] for row in rows])) for nth in range(len(SCANS))]
            print(f"  {f'ours / best other, {title}':<30}" + "".join(f"{cell:>7}" for cell in cells))


def print_summary(curves: Curves, best: list[tuple[float, float]]) -> None:
    """The same in short, as Markdown."""
    scans = [2.0, 3.0, 4.0, 6.0, 8.0]
    workloads = list(next(iter(curves.values())))
    print(f"\nMeans over seeds {', '.join(map(str, curves))}; the worst is over all scans and seeds\n")
    print(
        "| workload |"
        + "".join(f" scan {scan:.0f} |" for scan in scans)
        + " ratio | worst | without whole buckets | worst |"
    )
    print("|---" * (len(scans) + 5) + "|")
    everything: list[float | None] = []
    described: list[float | None] = []
    for workload in workloads:
        seeds = compared(curves, workload)
        cells = [
            f" {shown(float(np.mean([best_at(of[OURS], scan) for of in seeds])))} / "
            f"{shown(float(np.mean([best_other(of, scan) for of in seeds])))} |"
            for scan in scans
        ]
        row = [ratio for of in seeds for ratio in ratios(of)]
        without = [ratio for of in seeds for ratio in ratios(of, whole=False)]
        everything += row
        described += without
        figures = (geometric_mean(row), greatest(row), geometric_mean(without), greatest(without))
        print(f"| {workload} |" + "".join(cells) + "".join(f" {shown(figure)} |" for figure in figures))
    print(
        "| optimum for uniform loads |"
        + "".join(f" {optimum_at(best, scan):.2f} |" for scan in scans)
        + " | | | |"
    )
    figures = (
        geometric_mean(everything),
        greatest(everything),
        geometric_mean(described),
        greatest(described),
    )
    print(f"| all |{' |' * len(scans)}" + "".join(f" {shown(figure)} |" for figure in figures))
    for seed, of in curves.items():
        with_whole = geometric_mean([ratio for names in of.values() for ratio in ratios(names)])
        without_whole = geometric_mean(
            [ratio for names in of.values() for ratio in ratios(names, whole=False)]
        )
        print(f"seed {seed}: {with_whole:.3f}, without whole buckets {without_whole:.3f}")
    seeds_of = {workload: len(compared(curves, workload)) for workload in workloads}
    fewer = [f"{name} ({count})" for name, count in seeds_of.items() if count < len(curves)]
    print(f"compared with fewer than {len(curves)} seeds: {', '.join(fewer) or 'none'}")
    print_bound(curves, best)
    print_unknown(curves, f"{OURS}, no level or run")
    print_thresholds(curves)


def print_bound(curves: Curves, best: list[tuple[float, float]]) -> None:
    """Where uniform loads are, and the optimum itself, to the best of the others."""
    for whole in (True, False):
        bound: list[float | None] = []
        ours: list[float | None] = []
        for of in compared(curves, "uniform, sorted"):
            ours += ratios(of, whole)
            bound += [optimum_at(best, scan) / best_other(of, scan, whole) for scan in SCANS]
        print(
            f"uniform, sorted, {'with' if whole else 'without'} whole buckets: "
            f"ours {geometric_mean(ours):.2f}, at most {greatest(ours):.2f}; "
            f"the optimum {geometric_mean(bound):.2f}, at most {greatest(bound):.2f}"
        )


def print_unknown(curves: Curves, name: str) -> None:
    """What it costs to know no level: ours without it to ours with it, at equal scan."""
    by_workload: dict[str, list[float | None]] = {}
    for of in curves.values():
        for workload, names in of.items():
            if name in names:
                pairs = [
                    (best_at(names[name], scan), best_at(names[OURS], scan)) for scan in SCANS if scan >= 2
                ]
                by_workload.setdefault(workload, []).extend(
                    without / known for without, known in pairs if known > LEAST and np.isfinite(without)
                )
    means = {workload: geometric_mean(values) for workload, values in by_workload.items() if values}
    if means:
        everything = geometric_mean([value for values in by_workload.values() for value in values])
        low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        print(
            f"\nwithout level and run: {everything:.2f} times the work, "
            f"from {means[low]:.2f} ({low}) to {means[high]:.2f} ({high})"
        )


def print_thresholds(curves: Curves) -> None:
    """What each threshold comes to, mean scan / write amplification over seeds, as Markdown."""
    thresholds = [1.5, 2, 3, 4, 6, 8, 12]
    print("\n| workload |" + "".join(f" depth {threshold:g} |" for threshold in thresholds))
    print("|---" * (len(thresholds) + 1) + "|")
    for workload in next(iter(curves.values())):
        cells = []
        for threshold in thresholds:
            points = [
                point
                for of in curves.values()
                if workload in of
                for point in of[workload][OURS]
                if point.threshold == threshold
            ]
            scan = np.mean([point.scan for point in points])
            cells.append(f" {scan:.2f} / {np.mean([point.write_amplification for point in points]):.2f} |")
        print(f"| {workload} |" + "".join(cells))


def draw(curves: Curves, best: list[tuple[float, float]], path: Path) -> None:
    """One panel for each workload, means over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    workloads = list(next(iter(curves.values())))
    rows = -(-len(workloads) // 4)
    figure, panels = plt.subplots(rows, 4, figsize=(18, 4 * rows), squeeze=False)
    colours = {OURS: "C3", "peak": "C0", "above_average": "C1", "width": "C2", "full sort": "0.5"}
    scans = np.arange(1.0, 9.0, 0.05)
    for panel, workload in zip(panels.flat, workloads, strict=False):
        for name, colour in colours.items():
            lines = []
            for of in curves.values():
                forms = [
                    point
                    for form in of.get(workload, {})
                    if form.split(",")[0] == name and "no level" not in form
                    for point in of[workload][form]
                ]
                lines.append([max(best_at(forms, scan), 0.01) for scan in scans])
            panel.plot(scans, np.mean(lines, axis=0), color=colour, label=name)
        if workload == "uniform, sorted":
            panel.plot(*zip(*best, strict=True), "k--", label="optimum")
        panel.set(
            title=workload,
            yscale="log",
            xlim=(1, 9),
            ylim=(0.01, 60),
            xlabel="scan",
            ylabel="write amplification",
        )
    for panel in list(panels.flat)[len(workloads) :]:
        panel.axis("off")
    panels.flat[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=70)
