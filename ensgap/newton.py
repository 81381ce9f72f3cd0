"""The solvers behind temperature scaling: safeguarded Newton methods with exact derivatives in log T, for all problems
at once.

A problem is the NLL of an average of probabilities, summed over points, as a function of its temperatures. One problem
may be a member alone (a single slot), or an ensemble with k slots per point, each filled by one of its M members.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = 1e-9  # of log T: the last Newton step is smaller
MAX_STEPS = 100  # a guard against endless loops; 4–8 are usual for one temperature, 5–16 for several
SEARCH_POINTS = 2000  # enough to choose a valley; its floor is found on all points
SEARCH_PASSES = 10  # a guard too: 2–4 are usual


def coarse_grid(bound: float) -> Tensor:
    """The coarse scan of log T within 1/bound…bound: steps of a factor of two (with steps of e it missed 5 of 960 joint
    optima), T = 1 among them.
    """
    steps = 2 * math.ceil(math.log2(bound)) + 1
    return torch.linspace(-math.log(bound), math.log(bound), steps, dtype=torch.float64)


@dataclass(frozen=True)
class Problems:
    """B problems with k slots at each of P points, filled by M members."""

    margins: Tensor  # [problems, k, points, classes]: logits less the label's logit, float64
    who: Tensor  # [problems, k, points]: the member in the slot
    members: int

    @classmethod
    def build(cls, logits: Tensor, labels: Tensor, who: Tensor, members: int) -> "Problems":
        """From the slots' logits [problems, k, points, classes] and the points' labels [problems, points]."""
        logits = logits.double()
        own = labels[:, None, :, None].expand(-1, logits.shape[1], -1, 1)
        return cls(logits - logits.gather(-1, own), who, members)

    @classmethod
    def alone(cls, logits: Tensor, labels: Tensor) -> "Problems":
        """From single predictions: logits [problems, points, classes] and labels [problems, points]."""
        return cls.build(logits.unsqueeze(1), labels, torch.zeros_like(labels).unsqueeze(1), 1)

    def likelihoods(self, log_t: Tensor) -> Tensor:  # [problems, members] -> [problems, k, points]
        """The log of the probability each slot gives the label."""
        return -(self.margins * self._by_slot(-log_t).exp().unsqueeze(-1)).logsumexp(-1)

    def derivatives(
        self, log_t: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:  # -> [B], [B, members], [B, members, members]
        """The summed NLL of the averaged probabilities, its gradient and its Hessian in log T."""
        x = self.margins * self._by_slot(-log_t).exp().unsqueeze(-1)
        log_total = x.logsumexp(-1)
        probs = (x - log_total.unsqueeze(-1)).exp_()
        first = (probs * x).sum(-1)  # of the slot's log-likelihood: the mean margin
        second = first.square() - (probs * x.square_()).sum(-1) - first  # less its variance, less the mean
        weight = (-log_total).softmax(1)  # the slot's share of the label's probability
        slopes = self._by_member(weight * first)
        bends = self._by_member(weight * (second + first.square())).sum(-1)
        return pooled_nll(-log_total), -slopes.sum(-1), slopes @ slopes.mT - torch.diag_embed(bends)

    def _by_slot(self, values: Tensor) -> Tensor:  # [problems, members] -> [problems, k, points]
        return values.gather(1, self.who.flatten(1)).view(self.who.shape)

    def _by_member(self, values: Tensor) -> Tensor:  # [problems, k, points] -> [problems, members, points]
        spread = values.new_zeros(values.shape[0], self.members, values.shape[2])
        return spread.scatter_(1, self.who, values)


def pooled_nll(likelihoods: Tensor) -> Tensor:  # [problems, k, points] -> [problems]
    """The summed NLL of the slots' averaged probabilities."""
    return (math.log(likelihoods.shape[1]) - likelihoods.logsumexp(1)).sum(-1)


def shared_temperature(problems: Problems, prior: float | None, bound: float) -> Tensor:  # -> log T, [problems]
    """The one log T of each problem that minimises its NLL (plus the prior's (log T)²/2σ²).

    The NLL of one member is unimodal in log T, that of an average need not be: so scan the grid, refine from its best
    point, and from the second valley where there is one.
    """
    precision, count = (0.0 if prior is None else prior**-2), problems.margins.shape[0]
    grid = coarse_grid(bound).to(problems.margins.device)
    scan = torch.stack([pooled_nll(problems.likelihoods(u.expand(count, problems.members))) for u in grid])
    scan = scan + precision * grid.square().unsqueeze(1) / 2  # [grid, problems]
    best = scan.argmin(0)  # the lowest T of equals
    u, f = _descend(problems, precision, grid, best)
    wall = torch.full_like(scan[:1], torch.inf)
    valley = (scan < torch.cat([wall, scan[:-1]])) & (scan < torch.cat([scan[1:], wall]))
    second = torch.where(valley, scan, torch.inf).scatter(0, best.unsqueeze(0), torch.inf)
    rows = second.isfinite().any(0).nonzero().squeeze(1)
    if len(rows):
        some = Problems(problems.margins[rows], problems.who[rows], problems.members)
        other_u, other_f = _descend(some, precision, grid, second[:, rows].argmin(0))
        u[rows] = torch.where(other_f < f[rows], other_u, u[rows])
    return torch.where(f.isfinite(), u, torch.nan)


def _descend(
    problems: Problems, precision: float, grid: Tensor, start: Tensor
) -> tuple[Tensor, Tensor]:  # -> log T, objective, each [problems]
    """Newton's method in the downhill neighbour interval of a place in the grid, for one log T per problem.

    A step that leaves the bracket is replaced by its middle, and a point above the start closes the bracket: the result
    is never worse than the start.
    """

    def evaluate(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f, g, h = problems.derivatives(u.unsqueeze(1).expand(-1, problems.members))
        return f + precision * u.square() / 2, g.sum(1) + precision * u, h.sum((1, 2)) + precision

    u = near = grid[start]
    f, g, h = evaluate(u)
    limit = f
    towards = torch.where(g < 0, 1.0, -1.0).to(u)  # downhill
    far = near + towards * (grid[1] - grid[0])
    far = torch.where(far.abs() > grid[-1] + TOLERANCE, near, far)  # no way on: the optimum is the bound
    for _ in range(MAX_STEPS):
        newton = u - g / h
        inside = (h > 0) & ((newton - near) * towards >= 0) & ((far - newton) * towards >= 0)
        following = torch.where(inside, newton, (near + far) / 2)
        done = (following - u).abs() <= TOLERANCE
        u = following
        if bool((done | ~limit.isfinite()).all()):
            break
        f, g, h = evaluate(u)
        downhill = (g * towards < 0) & (f <= limit)
        near, far = torch.where(downhill, u, near), torch.where(downhill, far, u)
    return u, f


def own_temperatures(problems: Problems, prior: float | None, bound: float) -> Tensor:  # -> log T, [problems, members]
    """One log T for each member, fitted together; never worse than the shared temperature.

    Members can share the work in several ways, so there are many local optima: search the grid first, then refine with
    a damped Newton method within the bounds. The Hessian's eigenvalues are made positive, and a step that does not help
    is taken back. What it finds is a local optimum, mostly but not surely the global one.
    """
    precision, limit = (0.0 if prior is None else prior**-2), math.log(bound)
    identity = torch.eye(problems.members, dtype=torch.float64, device=problems.margins.device)

    def evaluate(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f, g, h = problems.derivatives(u)
        return f + precision * u.square().sum(1) / 2, g + precision * u, h + precision * identity

    shared = shared_temperature(problems, prior, bound).unsqueeze(1).expand(-1, problems.members)
    u = _search(problems, precision, coarse_grid(bound).to(shared), shared)
    (f, g, h), before = evaluate(u), evaluate(shared)
    u, f, g, h = _where(f <= before[0], (u, f, g, h), (shared, *before))
    finite = f.isfinite() & h.isfinite().all(2).all(1)
    damping = torch.zeros_like(f)
    for _ in range(MAX_STEPS):
        free = ~((u >= limit) & (g <= 0) | (u <= -limit) & (g >= 0)) & finite.unsqueeze(1)
        pairs = free.unsqueeze(1) & free.unsqueeze(2)
        values, vectors = torch.linalg.eigh(torch.where(pairs, h, identity))
        scale = values.abs().amax(1, keepdim=True)
        along = vectors.mT @ torch.where(free, g, 0.0).unsqueeze(2)  # [problems, members, 1]
        size = values.abs().clamp_min(1e-12 * scale) + damping.unsqueeze(1) * scale
        step = -(vectors @ (along / size.unsqueeze(2))).squeeze(2) * free
        step = step / step.abs().amax(1, keepdim=True).clamp_min(1.0)  # at most one unit of log T
        following = (u + step).clamp(-limit, limit)
        small = (following - u).abs().amax(1) <= TOLERANCE
        gainless = (g * (u - following)).sum(1) <= 1e-14 * (1 + f)
        if bool((small | gainless | ~finite).all()):
            break
        new = evaluate(following)
        better = new[0] <= f + 1e-14 * f.abs()  # rounding is no reason to take a step back
        u, f, g, h = _where(better, (following, *new), (u, f, g, h))
        damping = torch.where(better, torch.where(damping > 1e-3, damping / 10, 0.0), (10 * damping).clamp_min(1e-3))
    return torch.where(finite.unsqueeze(1), u, torch.nan)


def _where(condition: Tensor, yes: tuple[Tensor, ...], no: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """For each problem one of two alternatives, several tensors at once."""
    return tuple(torch.where(condition.view(-1, *[1] * (a.dim() - 1)), a, b) for a, b in zip(yes, no, strict=True))


def _search(
    problems: Problems, precision: float, grid: Tensor, shared: Tensor
) -> Tensor:  # -> log T, [problems, members]
    """The best of several coordinate-wise searches over the grid and the shared log T.

    A member's likelihoods depend on no other member's temperature, so they are tabled once and then only combined. The
    searches start from the shared log T, from each member's own best, and with each member in turn made uniform.
    """
    count, members = shared.shape
    stride = math.ceil(problems.margins.shape[2] / SEARCH_POINTS)
    some = Problems(problems.margins[:, :, ::stride], problems.who[:, :, ::stride], members)
    levels = torch.cat([grid.view(-1, 1, 1).expand(-1, count, members), shared.unsqueeze(0)])
    absent = shared.new_full((count, members, some.who.shape[2]), -torch.inf)
    table = torch.stack([absent.scatter(1, some.who, some.likelihoods(u)) for u in levels])
    penalty = precision / stride * levels.square() / 2  # [levels, problems, members]
    problem, member = torch.arange(count, device=shared.device), torch.arange(members, device=shared.device)

    joint = torch.full((count, members), len(grid), device=shared.device)
    alone = (penalty - torch.where(table.isfinite(), table, 0.0).sum(-1)).argmin(0)
    uniform = [torch.where(member == m, len(grid) - 1, joint) for m in range(members)]
    results, ends = [], []
    for chosen in (joint.clone(), alone, *uniform):  # [problems, members]: places in the levels
        for _ in range(SEARCH_PASSES):
            before = chosen.clone()
            for m in range(members):
                now = table[chosen, problem.unsqueeze(1), member]  # [problems, members, points]
                now[:, m] = -torch.inf
                gained = torch.logaddexp(now.logsumexp(1), table[:, :, m]).sum(-1)  # [levels, problems]
                chosen[:, m] = (penalty[:, :, m] - gained).argmin(0)
            if torch.equal(before, chosen):
                break
        now, cost = (x[chosen, problem.unsqueeze(1), member] for x in (table, penalty))
        results.append(cost.sum(1) - now.logsumexp(1).sum(-1))
        ends.append(levels[chosen, problem.unsqueeze(1), member])
    return torch.stack(ends)[torch.stack(results).argmin(0), problem]
