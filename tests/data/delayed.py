"""Delayed gradients by the formula, in plain Python: a network of two dense layers trained with momentum, layer k's
weights read `late[k]` updates behind, forward and backward.

    w_k(t+1) = w_k(t) - lr v_k(t),  v(t) = mu v(t-1) + g(t),  g(t) = grad f(w_0(t - late[0]), w_1(t - late[1]))

and with `predict`, forward, in place of what is late, what it was to become: w_k(t - d) - d lr v_k(t - d - 1), d = late[k];
backward w_k(t) itself.

With `clip=C` the gradients of all layers together are shortened to a norm of at most C: g(t) min(1, C / (|g(t)| + 1e-6)).

With `discount` layer k's learning rate is lr min(1, 2 / (1 + late[k])).

usage: delayed.py WEIGHTS.safetensors IMAGES.gz LABELS.gz STEPS BATCH LR MU LATE0 LATE1 [predict] [discount] [clip=C] <LOSSES.json
Compares the losses on standard input with f at each step; status 1 when one differs by more than 1e-5, relatively.
"""
import json, math, sys
from digits_mlp import Digits, gradient, moved, step, weights

path, images, labels = sys.argv[1:4]
steps, batch = int(sys.argv[4]), int(sys.argv[5])
lr, mu = float(sys.argv[6]), float(sys.argv[7])
late = [int(sys.argv[8]), int(sys.argv[9])]
predict = 'predict' in sys.argv[10:]
rate = [lr * min(1, 2 / (1 + d)) if 'discount' in sys.argv[10:] else lr for d in late]
clip = [float(a[5:]) for a in sys.argv[10:] if a.startswith('clip=')]
digits = Digits(images, labels)


def read(k, t):
    d = t - max(0, t - late[k])
    if not predict or d == 0 or d == t:         # as the run began, nothing is known to move on by
        return past[k][t - d]
    return [moved(w, v, lambda p, q: p - d * lr * q) for w, v in zip(past[k][t - d], moves[k][t - d - 1])]


past = [[l] for l in weights(path)]             # w(0), w(1), ...
moves = [[], []]                                # v(0), v(1), ...
got = json.load(sys.stdin)
for t in range(steps):
    rows, wanted = digits.batch(t, batch)
    l0, l1 = read(0, t), read(1, t)
    loss, through = step(l0, l1, rows, wanted, past[1][t] if predict else l1)
    if abs(got[t] - loss) > 1e-5 * loss:
        sys.exit('step %d: %.9g, by the formula %.9g' % (t, got[t], loss))
    g = [gradient(back, a) for a, back in through]
    for c in clip:
        norm = math.sqrt(sum(v * v for w, b in g for row in [*w, b] for v in row))
        g = [[moved(d, d, lambda p, q: p * min(1, c / (norm + 1e-6))) for d in layer] for layer in g]
    for k in (0, 1):
        moves[k].append([moved(v, d, lambda p, q: mu * p + q) for v, d in zip(moves[k][-1], g[k])] if t else g[k])
        past[k].append([moved(w, v, lambda p, q: p - rate[k] * q) for w, v in zip(past[k][-1], moves[k][-1])])
