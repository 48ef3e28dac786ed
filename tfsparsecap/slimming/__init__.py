"""`sc.slim`: a smaller copy of a model, without its least important channels, units and heads.

`plan` has `sc.slim` and `sc.slim_plan`, which go through these steps. `operation_graph` lists the operations
of a model in order. Rules (`layer_rules`, `shape_rules`, `join_rules`, `sequence_rules`, or a layer's own,
see `rules`) say which channels of inputs and outputs belong together; `groups` are channels that can only go
together. `importance` scores them, `channel_choice` takes the least important ones until the `budget` is met,
`rebuild` makes the smaller model, and `regression` changes the next layer's weights so that its outputs stay
near the old ones. `iterative` repeats this during a training.
"""
