import torch


def grouped_attention(queries, keys, values):
    b, h, n, d = queries.shape
    g = keys.shape[1]
    if h % g:
        raise ValueError("groups")
    q = queries.reshape(b, g, h // g, n, d)
    w = torch.einsum("bghnd,bgmd->bghnm", q, keys).div(d**0.5).softmax(-1)
    return torch.einsum("bghnm,bgmd->bghnd", w, values).reshape(b, h, n, d)


def cache_bytes(n_layers, d_model, n_heads, n_kv_heads, length, bytes_each):
    return n_layers * (d_model * n_kv_heads // n_heads) * length * bytes_each * 2
