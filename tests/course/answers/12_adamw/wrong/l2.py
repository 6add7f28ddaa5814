def adamw_step(w, g, m, v, *, step, lr, betas, eps, decay):
    g = g + decay * w
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    mh, vh = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
    return w - lr * mh / (vh.sqrt() + eps), m, v
