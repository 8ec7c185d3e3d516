; Written by `make grammars` from the words of the language.
(comment) @comment
(doc) @comment.documentation
(string) @string
(number) @number
(boolean) @boolean
["import" "from" "as" "block" "mixer" "mlp" "head" "init" "arch" "with" "param" "share" "carry" "if" "else" "slot" "layers" "of" "fill" "canon" "empty"] @keyword
["and" "or" "not"] @keyword.operator
["=" "==" "!=" "<" "<=" ">" ">=" "+" "-" "*" "/"] @operator
(definition name: (name) @function)
(alias name: (name) @function)
(init_table name: (name) @type)
(arch name: (name) @type)
(call function: (name) @function.call)
(call instance: (name) @property)
(slot name: (name) @constant)
(path (name) @property)
((call function: (name) @function.builtin)
 (#any-of? @function.builtin "add" "ahead_loss" "attention" "aux_loss" "canon" "channel_softmax" "concat" "delta_scan" "dplr_scan" "dropout" "embed" "exp" "expert_linear" "f32" "gelu" "gla_scan" "heads" "index" "l2_norm" "latent_attention" "linear" "log" "logsigmoid" "mean" "merge" "mix_heads" "mul" "ngram" "offset" "one_hot" "reciprocal" "relu" "repeat_heads" "rms_norm" "rope" "rwkv6_scan" "scale" "shift" "short_conv" "sigmoid" "silu" "softplus" "split" "spread" "ssd_scan" "sum" "tanh" "top_k"))
