def as_text(r): return "\n".join(map(str, r.findings))
