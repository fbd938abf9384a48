"""The page of a report: one HTML file without references to others, for screen and print."""

import html

from reporting import machine

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
       color: #111; background: #fff; }
figure { margin: 0; overflow-x: auto; }
svg { max-width: 100%; height: auto; }
h1, h2 { line-height: 1.2; }
pre { overflow-x: auto; background: #f4f4f4; padding: 0.5rem; font-size: 0.8rem; }
nav li { display: inline-block; margin-right: 1rem; }
nav ul { padding: 0; }
@media print { section { break-inside: avoid; } nav { display: none; } }
"""


def anchor(heading):
    return "".join(c if c.isalnum() else "-" for c in heading.lower())


def page(results, groups, pictures):
    sections = "".join(
        f'<section id="{anchor(heading)}"><h2>{html.escape(heading)}</h2>'
        f"{f'<p>{html.escape(text)}</p>' if text else ''}<figure>{picture}</figure></section>\n"
        for heading, text, picture in pictures)
    links = "".join(f'<li><a href="#{anchor(heading)}">{html.escape(heading)}</a></li>'
                    for heading, _, _ in pictures)
    commands = "\n".join(group.command(",".join(group.engines)) for group in groups)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>perdure: figures of {results.machine['date']}</title><style>{STYLE}</style></head>
<body>
<h1>perdure: figures of {results.machine['date']}</h1>
<p>{html.escape(machine.sentence(results.machine))}</p>
<p>All engines do the same generated work under the same driver, in turns; every result is
checked, and {results.lost()} keys were missing or unexpected. Each run begins with an empty map.
perdure runs with durability <code>emulated</code>, which executes every write-back and fence of
persistent memory on ordinary memory. The tables with all medians and intervals are in
docs/benchmarks.md.</p>
<nav><ul>{links}</ul></nav>
{sections}
<section id="commands"><h2>Commands</h2>
<p>A report runs each engine of a line in a process of its own, in turns.</p>
<pre>{html.escape(commands)}</pre></section>
</body></html>
"""
