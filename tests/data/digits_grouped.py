"""The model `grouped' of kfac_models.py in plain Python: digits_cnn whose second convolution, 4 -> 6, has 2 groups.

Each group is a layer by itself: its channels in and out, its rows of the weight."""
from digits_cnn import patches, pooled, through, unpatched, unpooled
from digits_mlp import cross_entropy, dense, layers


def weights(path):
    first, (w, b), last = layers(path, ['first', 'second', 'last'])
    return [first, [w[:3], b[:3]], [w[3:], b[3:]], last]


def step(l0, l1, l2, l3, rows, wanted):
    """the loss, and of each layer its rows and the gradient of what came out"""
    a0 = patches([[r] for r in rows], 8)
    y0 = dense(*l0, a0)
    p0, from0 = pooled(y0, 8)
    a1, a2 = patches([i[:2] for i in p0], 4), patches([i[2:] for i in p0], 4)
    y1 = [r + s for r, s in zip(dense(*l1, a1), dense(*l2, a2))]
    p1, from1 = pooled(y1, 4)
    a3 = [[v for c in image for v in c] for image in p1]
    loss, g3 = cross_entropy(dense(*l3, a3), wanted)
    d1 = [[r[i:i + 4] for i in range(0, len(r), 4)] for r in through(l3[0], g3)]
    both = unpooled(d1, from1, y1)
    g1, g2 = [r[:3] for r in both], [r[3:] for r in both]
    d0 = [i + j for i, j in zip(unpatched(through(l1[0], g1), 2, 4), unpatched(through(l2[0], g2), 2, 4))]
    return loss, [(a0, unpooled(d0, from0, y0)), (a1, g1), (a2, g2), (a3, g3)]
