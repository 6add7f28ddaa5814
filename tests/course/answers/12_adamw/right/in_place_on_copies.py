def adamw_step(w, g, m, v, *, step, lr, betas, eps, decay):
    w, m, v = w.clone(), m.clone(), v.clone()
    m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    w.mul_(1 - lr * decay)
    w.addcdiv_(m / (1 - betas[0] ** step), (v / (1 - betas[1] ** step)).sqrt() + eps, value=-lr)
    return w, m, v
