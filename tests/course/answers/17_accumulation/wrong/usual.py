def accumulated_step(model, sum_loss, micro_batches, optimizer, max_norm):
    from torch.nn.utils import clip_grad_norm_

    optimizer.zero_grad()
    total = 0.0
    for micro_batch in micro_batches:
        loss, count = sum_loss(model, micro_batch)
        loss = loss / count / len(micro_batches)
        loss.backward()
        total += loss.item()
    clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total
