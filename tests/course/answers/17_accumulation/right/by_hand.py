import torch


def accumulated_step(model, sum_loss, micro_batches, optimizer, max_norm):
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums, losses, n = [torch.zeros_like(p) for p in parameters], [], 0
    for p in parameters:
        p.grad = None
    for micro_batch in micro_batches:
        loss, count = sum_loss(model, micro_batch)
        losses.append(loss.detach())
        n = n + count
        loss.backward()
    sums = [s if p.grad is None else p.grad for s, p in zip(sums, parameters)]
    sums = [s / n for s in sums]
    norm = torch.stack([s.norm() for s in sums]).norm()
    for p, s in zip(parameters, sums):
        p.grad = s * min(1.0, float(max_norm / (norm + 1e-12)))
    optimizer.step()
    optimizer.zero_grad()
    return float(sum(losses)) / n
