"""The model `tied' of kfac_models.py in plain Python: dense, Relu, twice one dense layer with its Relu, dense, softmax cross-entropy."""
from digits_cnn import through
from digits_mlp import cross_entropy, dense, layers


def weights(path):
    return layers(path, ['first', 'again', 'last'])


def relu(rows):
    return [[max(v, 0.0) for v in r] for r in rows]


def step(l0, l1, l2, rows, wanted):
    """the loss, and of each layer its rows, of both uses one after the other, and the gradient of what came out"""
    a = [rows]
    for l in (l0, l1, l1):
        a.append(relu(dense(*l, a[-1])))
    loss, g = cross_entropy(dense(*l2, a[3]), wanted)
    back = [g]
    for l, y in ((l2, a[3]), (l1, a[2]), (l1, a[1])):
        back.append([[v if p > 0 else 0.0 for v, p in zip(r, q)] for r, q in zip(through(l[0], back[-1]), y)])
    return loss, [(rows, back[3]), (a[1] + a[2], back[2] + back[1]), (a[3], g)]
