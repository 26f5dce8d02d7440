"""Tables and plots of `paceline probe`'s measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paceline.collectives.network_file import NetworkFile, Pair
from paceline.launch import outputs
from paceline.launch.quantities import size_name

if TYPE_CHECKING:
    from rich.table import Table

# With more ranks the table of pairs is wider than a screen; the plot shows all of them.
MOST_RANKS = 8
MOST_LABELLED = 16


def tables(network: NetworkFile) -> Iterator[Table]:
    """Yield a table of pairs, a row per sender; then for each operation a row per collective and a column per size."""
    from rich.table import Table

    if network.ranks <= MOST_RANKS:
        pairs = Table(title="Pairs: latency us, bandwidth MB/s", title_justify="left")
        pairs.add_column("from")
        for receiver, host in enumerate(network.hosts):
            pairs.add_column(f"{receiver} {host}", justify="right")
        found = {(pair.sender, pair.receiver): pair for pair in network.pairs}
        for sender, host in enumerate(network.hosts):
            cells = [_pair_text(found.get((sender, receiver))) for receiver in range(network.ranks)]
            pairs.add_row(f"{sender} {host}", *cells)
        between = "hosts" if len(set(network.hosts)) > 1 else "ranks"
        pairs.caption = (
            f"Between {between}: {network.alpha_s * 1e6:.4g} us + {network.beta_s_per_byte * 1e9:.4g} ms/MB (median)"
        )
        yield pairs
    for operation in dict.fromkeys(timing.operation for timing in network.timings):
        timings = [timing for timing in network.timings if timing.operation == operation]
        sizes = sorted({timing.size_bytes for timing in timings})
        table = Table(title=f"{operation} among {network.ranks} ranks: message ms (call ms)", title_justify="left")
        table.add_column("collective")
        for size in sizes:
            table.add_column(size_name(size), justify="right")
        for name in dict.fromkeys(timing.collective for timing in timings):
            at = {timing.size_bytes: timing for timing in timings if timing.collective == name}
            cells = []
            for size in sizes:
                text = f"{at[size].message_s * 1e3:.4g} ({at[size].call_s * 1e3:.4g})" if size in at else ""
                cells.append(f"[bold]{text}[/bold]" if name == network.fastest(operation, size) else text)
            table.add_row(name, *cells)
        yield table


def _pair_text(pair: Pair | None) -> str:
    return "" if pair is None else f"{pair.latency_s * 1e6:.0f}, {pair.bytes_per_s / 1e6:.4g}"


def save(network: NetworkFile, path: Path) -> None:
    """Draw latency and bandwidth of all pairs as heat maps. Raises UserError if that cannot be written."""
    from paceline.launch.record import plot

    plot.save(figure(network), path)


def figure(network: NetworkFile) -> Any:
    """Return a figure with two heat maps, a row per sender and a column per receiver."""
    side = min(max(0.55 * network.ranks, 3.2), 12)
    made = outputs.figure(figsize=(2 * side + 2, side + 1), layout="constrained")
    latency_us, bandwidth = np.full((2, network.ranks, network.ranks), np.nan)
    for pair in network.pairs:
        latency_us[pair.sender, pair.receiver] = pair.latency_s * 1e6
        bandwidth[pair.sender, pair.receiver] = pair.bytes_per_s / 1e6
    left, right = made.subplots(1, 2)
    _draw(made, left, latency_us, "latency, us", "viridis_r", network.hosts)
    _draw(made, right, bandwidth, "bandwidth, MB/s", "viridis", network.hosts)
    return made


def _draw(made: Any, axes: Any, values: NDArray[np.float64], title: str, colours: str, hosts: Sequence[str]) -> None:
    image = axes.imshow(values, cmap=colours)
    made.colorbar(image, ax=axes, shrink=0.8)
    axes.set_title(title, loc="left")
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    ticks = range(len(hosts))
    if len(hosts) <= MOST_LABELLED:
        axes.set_xticks(ticks, [str(rank) for rank in ticks])
        axes.set_yticks(ticks, [f"{rank} {host}" for rank, host in enumerate(hosts)])
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        dark_is_high = not colours.startswith("viridis") or colours.endswith("_r")
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                ink = "white" if (value > middle) == dark_is_high else "black"
                axes.text(column, row, _number(value), ha="center", va="center", color=ink, fontsize=8)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
