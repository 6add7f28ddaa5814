def adamw_step(w, g, m, v, *, step, lr, betas, eps, decay):
    m = m.lerp(g, 1 - betas[0])
    v = v.lerp(g.square(), 1 - betas[1])
    fix = (1 - betas[1] ** step) ** 0.5
    size = lr / (1 - betas[0] ** step)
    return (1 - lr * decay) * w - size * m / (v.sqrt() / fix + eps), m, v
