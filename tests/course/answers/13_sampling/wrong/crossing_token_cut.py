import torch


def chances(logits, *, temperature, top_k, top_p):
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(1), logits.shape[1]).float()
    logits = logits / temperature
    if top_k and top_k < logits.shape[1]:
        kth = logits.topk(top_k, 1).values[:, -1:]
        logits = torch.where(logits < kth, -torch.inf, logits)
    p, order = logits.softmax(1).sort(1, descending=True)
    if top_p < 1:
        p = torch.where(p.cumsum(1) > top_p, 0.0, p)
    p = torch.zeros_like(p).scatter(1, order, p)
    return p / p.sum(1, keepdim=True)
