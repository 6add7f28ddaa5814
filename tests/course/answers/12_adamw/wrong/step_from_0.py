def adamw_step(w, g, m, v, *, step, lr, betas, eps, decay):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    mh, vh = m / (1 - betas[0] ** (step + 1)), v / (1 - betas[1] ** (step + 1))
    return w * (1 - lr * decay) - lr * mh / (vh.sqrt() + eps), m, v
