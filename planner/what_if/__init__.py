"""Advice: what if? Edits of a plan's constraints, and plans made again with them.

`edits` applies them, `replan` plans again what they touch, `restore` puts a kernel back into float,
`suggest` looks for edits that remove a rescale, `pareto` for the other trade-offs of a component.
Everything here calls propagation; comparing two plans is `plans.diff`. Source: docs/specification.md, section
6.
"""
