def residual(x, sublayer, norm, placement):
    if placement == "pre":
        sublayer(norm(x))
        return x + sublayer(norm(x))
    sublayer(x)
    return norm(x + sublayer(x))
