from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries @ keys.transpose(-2, -1)).softmax(1)
