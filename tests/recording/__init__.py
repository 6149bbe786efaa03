"""The terminal recording of README: what two real shells showed, as one animated SVG."""
