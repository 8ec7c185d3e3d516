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
