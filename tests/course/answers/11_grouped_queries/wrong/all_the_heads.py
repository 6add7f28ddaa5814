def cache_bytes(n_layers, d_model, n_heads, n_kv_heads, length, bytes_each):
    return 2 * n_layers * d_model * length * bytes_each
